import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Unlisten } from "../../core/unlisten.js";
import { CellWatchers } from "../../engine-kit/cell-watchers.js";
import type { Node, Operation, Stat } from "./driver.js";
import { CODE, hasCode, refused } from "./errors.js";
import { escaped } from "./node-names.js";
import type { Nodes } from "./nodes.js";

const ABSENT: Cell = { version: 0, value: null };
const EMPTY = Buffer.alloc(0);
const AGAIN_MS = 500;
const TRIES = 20;

/**
 * A node per cell; its version is the transaction that wrote it, so versions grow over a removal. Each operation leaves a
 * node of its own in the same transaction: a write that comes again finds it, and answers as it did the first time.
 */
export class ZooKeeperCells implements Cells {
  readonly #nodes: Nodes;
  readonly #folder: string;
  readonly #operations: string;
  readonly #watchers = new CellWatchers({ first: (name) => this.#watch(name), last: (name) => this.#unwatch(name) });
  /** Called when a watched cell may have changed. */
  readonly #changed = new Map<string, () => void>();

  constructor(nodes: Nodes) {
    this.#nodes = nodes;
    this.#folder = `${nodes.base}/~cells`;
    this.#operations = `${nodes.base}/~operations`;
  }

  read(name: string): Promise<Cell> {
    return orRefused(this.#read(name));
  }

  write(write: CellWrite): Promise<CellAnswer> {
    return orRefused(this.#write(write));
  }

  async #read(name: string): Promise<Cell> {
    // A write first: this server may lag behind what another client was told.
    const [, node] = await Promise.all([
      this.#nodes.session.write((client) => client.confirm([])),
      this.#nodes.session.read((client) => client.get(this.#pathOf(name))),
    ]);
    return cellOf(node);
  }

  async #write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const { session } = this.#nodes;
    const path = this.#pathOf(name);
    const note = `${this.#operations}/${escaped(operation)}`;
    for (let tries = 1; ; tries += 1) {
      const [before, folder, node] = await Promise.all([
        session.read((client) => client.get(note)),
        session.read((client) => client.exists(this.#folder)),
        session.read((client) => client.get(path)),
      ]);
      if (before !== null) return answerOf(before);
      const cell = cellOf(node);
      try {
        if (cell.version !== expected) {
          // Remembered too: its late copy must not take effect after a removal.
          await this.#change(note, { kind: "conflict", cell }, []);
          return { kind: "conflict", cell };
        }
        const version = await this.#change(
          note,
          { kind: "written", cell: { version: 0, value } },
          node === null ? creation(path, value) : this.#changes(path, node.stat, folder?.version ?? 0, value),
        );
        return { kind: "written", cell: value === null ? ABSENT : { version, value } };
      } catch (error) {
        if (tries === TRIES || !hasCode(error, CODE.noNode, CODE.nodeExists, CODE.badVersion)) throw error;
        // The folders are missing, somebody else was faster, or a copy of this very operation was.
        if (hasCode(error, CODE.noNode)) await this.#makeFolders();
      }
    }
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    return this.#watchers.add(name, listener);
  }

  close(): void {
    for (const name of this.#watchers.names) this.#unwatch(name);
    this.#watchers.clear();
  }

  /** A new connection, perhaps of a new session, which watches nothing. */
  readAgain(): void {
    for (const changed of this.#changed.values()) changed();
  }

  #watch(name: string): void {
    const { session } = this.#nodes;
    const path = this.#pathOf(name);
    const isWatched = (): boolean => this.#changed.get(name) === changed;
    const read = async (): Promise<void> => {
      const [, node] = await Promise.all([
        session.read((client) => client.exists(path, changed)),
        session.read((client) => client.get(path)),
      ]);
      if (isWatched()) this.#watchers.tellChange(name, cellOf(node));
    };
    const changed = (): void => {
      // Without a connection nothing is watched: try again until there is one.
      if (isWatched()) read().catch(() => session.afterwards(AGAIN_MS, async () => changed()));
    };
    this.#changed.set(name, changed);
    changed();
  }

  #unwatch(name: string): void {
    const changed = this.#changed.get(name);
    this.#changed.delete(name);
    if (changed !== undefined) this.#nodes.session.client.unwatch(this.#pathOf(name), changed);
  }

  /** The change and the note of it, or none of the two. All parts of a transaction have one number: the cell's version. */
  async #change(note: string, answer: CellAnswer, operations: readonly Operation[]): Promise<number> {
    const data = Buffer.from(JSON.stringify(answer));
    const noting: Operation = { kind: "create", path: note, data, mode: "ephemeral" };
    const { session } = this.#nodes;
    const [, noted] = await Promise.all([
      session.write((client) => client.transact([noting, ...operations])),
      session.read((client) => client.exists(note)),
    ]);
    this.#nodes.removeLater(note);
    if (noted === null) throw new Error("an operation's note left before it could be read");
    return noted.czxid;
  }

  /**
   * A node that is made anew begins with the version of the one before it. So each removal also counts up the version of
   * the folder, and nothing is written to a node that was read before a removal.
   */
  #changes(path: string, { version }: Stat, removals: number, value: string | null): readonly Operation[] {
    const folder = { path: this.#folder, version: removals };
    return value === null
      ? [
          { kind: "remove", path, version },
          { kind: "set", ...folder, data: EMPTY },
        ]
      : [
          { kind: "set", path, data: Buffer.from(value), version },
          { kind: "check", ...folder },
        ];
  }

  async #makeFolders(): Promise<void> {
    // Of a folder that were removed and made anew the version would begin again, and tell nothing of removals.
    await this.#nodes.makeFolder(this.#folder, "persistent");
    await this.#nodes.makeFolder(this.#operations);
  }

  #pathOf(name: string): string {
    return `${this.#folder}/${escaped(name)}`;
  }
}

function orRefused<T>(answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    throw refused(error);
  });
}

function creation(path: string, value: string | null): readonly Operation[] {
  return value === null ? [] : [{ kind: "create", path, data: Buffer.from(value), mode: "persistent" }];
}

function cellOf(node: Node | null): Cell {
  return node === null ? ABSENT : { version: node.stat.mzxid, value: node.data.toString() };
}

function answerOf(note: Node): CellAnswer {
  const { kind, cell } = JSON.parse(note.data.toString()) as CellAnswer;
  const written = kind === "written" && cell.value !== null;
  return { kind, cell: written ? { version: note.stat.czxid, value: cell.value } : cell };
}
