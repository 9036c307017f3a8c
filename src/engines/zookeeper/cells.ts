import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Unlisten } from "../../core/unlisten.js";
import { CODE, hasCode, type Node, type Operation, type Stat, type ZooKeeperClient } from "./client.js";
import { escaped } from "./names.js";
import { refused } from "./refusals.js";
import type { Store } from "./store.js";

const ABSENT: Cell = { version: 0, value: null };
const EMPTY = Buffer.alloc(0);
const AGAIN_MS = 500;
const TRIES = 20;

/**
 * A node per cell; its version is the transaction that wrote it, so versions grow over a removal. Each operation leaves a
 * node of its own in the same transaction: a write that comes again finds it, and answers as it did the first time.
 */
export class ZooKeeperCells implements Cells {
  readonly #store: Store;
  readonly #transact: NonNullable<ZooKeeperClient["transact"]>;
  readonly #folder: string;
  readonly #operations: string;
  readonly #watching = new Set<() => void>();

  constructor(store: Store, transact: NonNullable<ZooKeeperClient["transact"]>) {
    this.#store = store;
    this.#transact = transact;
    this.#folder = `${store.base}/~cells`;
    this.#operations = `${store.base}/~operations`;
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
      this.#store.session.write((client) => client.confirm([])),
      this.#store.session.read((client) => client.get(this.#pathOf(name))),
    ]);
    return cellOf(node);
  }

  async #write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const { session } = this.#store;
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
    const { session } = this.#store;
    const path = this.#pathOf(name);
    let left = false;
    let seen: number | null = null;
    const look = async (): Promise<void> => {
      const [, node] = await Promise.all([
        session.read((client) => client.exists(path, changed)),
        session.read((client) => client.get(path)),
      ]);
      const cell = cellOf(node);
      if (!left && seen !== null && seen !== cell.version) listener(cell);
      seen = cell.version;
    };
    const changed = (): void => {
      // Without a connection nothing is watched: look again until there is one.
      if (!left) look().catch(() => session.afterwards(AGAIN_MS, async () => changed()));
    };
    changed();
    this.#watching.add(changed);
    return () => {
      left = true;
      this.#watching.delete(changed);
      session.client.unwatch(path, changed);
    };
  }

  /** A new connection, perhaps a new session, which watches nothing. */
  lookAgain(): void {
    for (const look of this.#watching) look();
  }

  /** The change and the note of it, or none of the two. All parts of a transaction have one number: the cell's version. */
  async #change(note: string, answer: CellAnswer, operations: readonly Operation[]): Promise<number> {
    const data = Buffer.from(JSON.stringify(answer));
    const noting: Operation = { kind: "create", path: note, data, mode: "ephemeral" };
    const { session } = this.#store;
    const [, noted] = await Promise.all([
      session.write(() => this.#transact([noting, ...operations])),
      session.read((client) => client.exists(note)),
    ]);
    this.#store.removeLater(note);
    if (noted === null) throw new Error("an operation's note left before it could be read");
    return noted.czxid;
  }

  /**
   * A node that is made anew begins with the version of the one before it. So each removal also counts up the version of
   * the folder, and nothing is written to a node that was looked at before a removal.
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
    await this.#store.makeFolder(this.#folder);
    await this.#store.makeFolder(this.#operations);
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
