import type { Cell, CellAnswer, Cells, CellWrite } from "../core/cells.js";
import type { Clock, Timer } from "../core/clock.js";
import { POLL_MAX_MS } from "../core/limits.js";
import type { Unlisten } from "../core/unlisten.js";
import type { Database } from "./database.js";
import type { LockTable } from "./lock-table.js";

/** How often watched cells are read when the database cannot tell of changes. */
const POLL_EVERY_MS = 100;

type Watched = {
  version: number | null;
  reading: boolean;
  again: boolean;
  readonly listeners: Set<(cell: Cell) => void>;
};

/** Cells as rows. A change is told by name where the database can do that; a slow poll makes a lost notification harmless. */
export class LockTableCells implements Cells {
  readonly #table: () => LockTable;
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #warn: (message: string) => void;
  readonly #watched = new Map<string, Watched>();
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
    const watched = this.#watched.get(name) ?? { version: null, reading: false, again: false, listeners: new Set() };
    this.#watched.set(name, watched);
    watched.listeners.add(listener);
    this.#unwatch ??= this.#database.watchCells((changed) => this.#changed(changed));
    void this.#read(name, watched);
    this.#poll();
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size === 0 && this.#watched.get(name) === watched) this.#watched.delete(name);
      if (this.#watched.size === 0) this.stop();
    };
  }

  stop(): void {
    this.#watched.clear();
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
      if (this.#watched.size > 0) this.#poll();
    });
  }

  #changed(name: string | null): void {
    for (const [one, watched] of this.#watched) if (name === null || name === one) void this.#read(one, watched);
  }

  /** One read at a time for a cell; what changes meanwhile is read after it. What was there at the beginning is no change. */
  async #read(name: string, watched: Watched): Promise<void> {
    watched.again = true;
    if (watched.reading) return;
    watched.reading = true;
    try {
      while (watched.again && watched.listeners.size > 0) {
        watched.again = false;
        const cell = await this.read(name);
        const before = watched.version;
        watched.version = cell.version;
        if (before === null || before === cell.version) continue;
        for (const listener of watched.listeners) listener(cell);
      }
    } catch (error) {
      if (watched.listeners.size > 0) this.#warn(`the watched cell "${name}" could not be read: ${String(error)}`);
    } finally {
      watched.reading = false;
    }
  }
}
