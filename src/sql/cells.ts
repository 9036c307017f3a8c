import type { Cell, CellAnswer, Cells, CellWrite } from "../core/cells.js";
import type { Clock, Timer } from "../core/clock.js";
import { POLL_MAX_MS } from "../core/limits.js";
import type { Unlisten } from "../core/unlisten.js";
import { CellWatchers } from "../engine-kit/cell-watchers.js";
import type { Database } from "./database.js";
import type { LockTable } from "./lock-table.js";

/** How often watched cells are read when the database cannot tell of changes. */
const POLL_EVERY_MS = 100;

/**
 * Cells as rows. A change is told by name where the database can do that; a slow poll makes a lost notification harmless.
 *
 * The first version that a watch reads is told like a change. The caller has read the cell on another connection, before or
 * after: nobody knows whether it has seen that version.
 */
export class LockTableCells implements Cells {
  readonly #table: () => LockTable;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #warn: (message: string) => void;
  readonly #watchers = new CellWatchers({ last: () => this.#watchers.size === 0 && this.stop() });
  /** The watched cells that are being read; true: it may have changed meanwhile, and is read once more. */
  readonly #reading = new Map<string, boolean>();
  #unwatch: Unlisten | null = null;
  #timer: Timer | null = null;

  /** `table` throws when the engine is closed. */
  constructor(table: () => LockTable, database: Database, clock: Clock, warn: (message: string) => void) {
    this.#table = table;
    this.#database = database;
    this.#clock = clock;
    this.#warn = warn;
  }

  async read(name: string): Promise<Cell> {
    return this.#table().readCell(name);
  }

  async write(write: CellWrite): Promise<CellAnswer> {
    return this.#table().writeCell(write);
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    this.#table();
    const unlisten = this.#watchers.add(name, listener);
    this.#unwatch ??= this.#database.watchCells((changed) => this.#changed(changed));
    this.#poll();
    return unlisten;
  }

  stop(): void {
    this.#watchers.clear();
    this.#unwatch?.();
    this.#unwatch = null;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  #poll(): void {
    if (this.#timer !== null) return;
    this.#timer = this.#clock.after(this.#unwatch === null ? POLL_EVERY_MS : POLL_MAX_MS, () => {
      this.#timer = null;
      this.#changed(null);
      this.#poll();
    });
  }

  #changed(name: string | null): void {
    for (const one of this.#watchers.names) if (name === null || name === one) void this.#read(one);
  }

  /** One read at a time for a cell; what changes meanwhile is read after it. */
  async #read(name: string): Promise<void> {
    const begun = this.#reading.has(name);
    this.#reading.set(name, begun);
    if (begun) return;
    do {
      this.#reading.set(name, false);
      try {
        this.#watchers.tell(name, await this.read(name));
      } catch (error) {
        if (this.#watchers.has(name)) this.#warn(`the watched cell "${name}" could not be read: ${String(error)}`);
      }
    } while (this.#reading.get(name) === true && this.#watchers.has(name));
    this.#reading.delete(name);
  }
}
