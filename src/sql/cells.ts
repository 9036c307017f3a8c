import type { Cell, CellAnswer, Cells, CellWrite } from "../core/cells.js";
import type { Clock, Timer } from "../core/clock.js";
import { POLL_MAX_MS } from "../core/limits.js";
import type { Unlisten } from "../core/unlisten.js";
import { cellArgs, parseCellAnswer } from "./codec.js";
import type { LockTable } from "./lock-table.js";

/** How often watchers look by themselves when the database cannot tell them. */
const POLL_EVERY_MS = 100;

type Watched = {
  version: number | null;
  looking: boolean;
  again: boolean;
  readonly listeners: Set<(cell: Cell) => void>;
};

/** Cells as rows. A change is told by name where the database can do that; a slow poll makes a lost message harmless. */
export class LockTableCells implements Cells {
  readonly #table: () => LockTable;
  readonly #clock: Clock;
  readonly #warn: (message: string) => void;
  readonly #watched = new Map<string, Watched>();
  #unhear: Unlisten | null = null;
  #timer: Timer | null = null;

  constructor(table: () => LockTable, clock: Clock, warn: (message: string) => void) {
    this.#table = table;
    this.#clock = clock;
    this.#warn = warn;
  }

  async read(name: string): Promise<Cell> {
    return JSON.parse(await this.#table().call("cell_read", [name])) as Cell;
  }

  async write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const table = this.#table();
    return parseCellAnswer(
      await table.call("cell_write", cellArgs(name, operation, expected, value, table.cellChannel)),
    );
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    const table = this.#table();
    const watched = this.#watched.get(name) ?? { version: null, looking: false, again: false, listeners: new Set() };
    this.#watched.set(name, watched);
    watched.listeners.add(listener);
    this.#unhear ??= table.hearCells((changed) => this.#changed(changed));
    void this.#look(name, watched);
    this.#poll();
    return () => {
      watched.listeners.delete(listener);
      if (watched.listeners.size === 0 && this.#watched.get(name) === watched) this.#watched.delete(name);
      if (this.#watched.size === 0) this.stop();
    };
  }

  stop(): void {
    this.#watched.clear();
    this.#unhear?.();
    this.#unhear = null;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  #poll(): void {
    if (this.#timer !== null) return;
    this.#timer = this.#clock.after(this.#unhear === null ? POLL_EVERY_MS : POLL_MAX_MS, () => {
      this.#timer = null;
      this.#changed(null);
      if (this.#watched.size > 0) this.#poll();
    });
  }

  #changed(name: string | null): void {
    for (const [one, watched] of this.#watched) if (name === null || name === one) void this.#look(one, watched);
  }

  /** One read at a time for a cell; what changes meanwhile is read after it. What was there at the beginning is no change. */
  async #look(name: string, watched: Watched): Promise<void> {
    watched.again = true;
    if (watched.looking) return;
    watched.looking = true;
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
      watched.looking = false;
    }
  }
}
