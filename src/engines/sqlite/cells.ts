import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Clock, Timer } from "../../core/clock.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { Unlisten } from "../../core/unlisten.js";
import { CellWatchers } from "../../engine-kit/cell-watchers.js";
import { failureOf } from "./errors.js";
import type { LockFile } from "./lock-file.js";
import type { LockTables } from "./lock-tables.js";

const ABSENT: Cell = { version: 0, value: null };
/** How often watched cells are read again, where the file system tells of changes and where it does not. */
const READ_EVERY_MS = 200;
const POLL_EVERY_MS = 20;
/** How often it is tried to watch the file of changes where it could not be watched. */
const WATCH_EVERY_MS = 1_000;

/** Cells as rows. A change of any cell touches one small file; whoever watches cells then reads those that it watches. */
export class SqliteCells implements Cells {
  readonly #clock: Clock;
  readonly #opened: () => Promise<LockFile>;
  readonly #warn: (message: string) => void;
  readonly #watchers = new CellWatchers({ last: () => this.#watchers.size === 0 && this.stop() });
  #timer: Timer | null = null;
  #watchAt = 0;

  constructor(clock: Clock, opened: () => Promise<LockFile>, warn: (message: string) => void) {
    this.#clock = clock;
    this.#opened = opened;
    this.#warn = warn;
  }

  async read(name: string): Promise<Cell> {
    const { transactions, tables } = await this.#opened();
    return transactions.read(`reading cell "${name}"`, () => readCell(tables, name));
  }

  async write(write: CellWrite): Promise<CellAnswer> {
    const file = await this.#opened();
    const { cellChanges } = file;
    const committed = (answer: CellAnswer): void => {
      if (answer.kind === "conflict") return;
      cellChanges.touch();
      this.#readWatched(file);
    };
    return file.write(`writing cell "${write.name}"`, (tables) => writeCell(tables, write), committed);
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    const unlisten = this.#watchers.add(name, listener);
    this.#opened().then(
      (file) => {
        this.#watchChanges(file);
        this.#readWatched(file);
        this.#schedule(file);
      },
      (error: unknown) => this.#warn(`cell "${name}" cannot be watched: ${String(error)}`),
    );
    return unlisten;
  }

  stop(): void {
    this.#watchers.clear();
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  #watchChanges(file: LockFile): void {
    this.#watchAt = this.#clock.now() + WATCH_EVERY_MS;
    file.cellChanges.watch(() => this.#readWatched(file));
  }

  #schedule(file: LockFile): void {
    if (this.#timer !== null || this.#watchers.size === 0) return;
    this.#timer = this.#clock.after(file.cellChanges.watched ? READ_EVERY_MS : POLL_EVERY_MS, () => {
      this.#timer = null;
      // The user's limit of watches may not be reached any more.
      if (this.#clock.now() >= this.#watchAt) this.#watchChanges(file);
      this.#readWatched(file);
      this.#schedule(file);
    });
  }

  #readWatched({ transactions, tables }: LockFile): void {
    const { names } = this.#watchers;
    if (names.length === 0) return;
    try {
      const cells = transactions.readNow(() => names.map((name) => [name, readCell(tables, name)] as const));
      for (const [name, cell] of cells) this.#watchers.tellChange(name, cell);
    } catch (error) {
      if (failureOf(error) !== "busy") this.#warn(`reading watched cells: ${String(error)}`);
    }
  }
}

function readCell({ sql }: LockTables, name: string): Cell {
  const row = sql.cellRead.get(name);
  return row === undefined ? ABSENT : { version: row.version, value: row.value };
}

function writeCell(tables: LockTables, write: CellWrite): CellAnswer {
  const { sql } = tables;
  // Fails where another machine has opened the file.
  tables.load({ name: write.name, id: "" });
  const before = sql.operationGet.get(write.operation, tables.now);
  if (before !== undefined) {
    return { kind: before.kind as CellAnswer["kind"], cell: { version: before.version, value: before.value } };
  }
  const answer = change(tables, write);
  // A conflict is remembered too: its late copy must not take effect after a removal.
  const { version, value } = answer.cell;
  sql.operationPut.run(write.operation, answer.kind, version, value, tables.now + TOMBSTONE_MS);
  return answer;
}

function change(tables: LockTables, { name, expected, value }: CellWrite): CellAnswer {
  const { sql } = tables;
  const current = readCell(tables, name);
  if (current.version !== expected) return { kind: "conflict", cell: current };
  const version = sql.cellVersionNext.get()?.version;
  if (version === undefined) throw new Error("invariant: the store has its row");
  if (value === null) sql.cellDelete.run(name);
  else sql.cellPut.run(name, version, value);
  return { kind: "written", cell: value === null ? ABSENT : { version, value } };
}
