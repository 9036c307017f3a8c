import type { Cell, CellAnswer, Cells, CellWrite } from "../../core/cells.js";
import type { Clock } from "../../core/clock.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { Unlisten } from "../../core/unlisten.js";
import { CellWatchers } from "../../engine-kit/cell-watchers.js";
import { ExpiringMap } from "./expiring-map.js";

const ABSENT: Cell = { version: 0, value: null };

export class MemoryCells implements Cells {
  readonly #clock: Clock;
  readonly #cells = new Map<string, Cell>();
  readonly #operations = new ExpiringMap<CellAnswer>(TOMBSTONE_MS);
  readonly #watchers = new CellWatchers();
  /** One for all cells, so that a name which was removed does not start again at an old version. */
  #version = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async read(name: string): Promise<Cell> {
    return this.#cells.get(name) ?? ABSENT;
  }

  async write({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    const now = this.#clock.now();
    const before = this.#operations.get(operation, now);
    if (before !== undefined) return before;
    const current = this.#cells.get(name) ?? ABSENT;
    // A conflict is remembered too: its late copy must not take effect after a removal.
    if (current.version !== expected) return this.#remember(operation, { kind: "conflict", cell: current }, now);
    this.#version += 1;
    const cell = value === null ? ABSENT : { version: this.#version, value };
    if (value === null) this.#cells.delete(name);
    else this.#cells.set(name, cell);
    this.#watchers.tell(name, cell);
    return this.#remember(operation, { kind: "written", cell }, now);
  }

  #remember(operation: string, answer: CellAnswer, now: number): CellAnswer {
    this.#operations.set(operation, answer, now);
    return answer;
  }

  watch(name: string, listener: (cell: Cell) => void): Unlisten {
    return this.#watchers.add(name, listener);
  }
}
