import type { Cell } from "../core/cells.js";
import type { Unlisten } from "../core/unlisten.js";

type Watched = {
  readonly listeners: Set<(cell: Cell) => void>;
  /** Null until the first one is known. */
  version: number | null;
};

/** Called for a cell whose first listener came or whose last one left. */
export type CellWatchersHooks = {
  readonly first?: (name: string) => void;
  readonly last?: (name: string) => void;
};

/** Who watches which cell of a store, and the version that each cell's listeners were told last. */
export class CellWatchers {
  readonly #watched = new Map<string, Watched>();
  readonly #hooks: CellWatchersHooks;

  constructor(hooks: CellWatchersHooks = {}) {
    this.#hooks = hooks;
  }

  /** The cells that somebody watches. */
  get names(): readonly string[] {
    return [...this.#watched.keys()];
  }

  get size(): number {
    return this.#watched.size;
  }

  has(name: string): boolean {
    return this.#watched.has(name);
  }

  add(name: string, listener: (cell: Cell) => void): Unlisten {
    let watched = this.#watched.get(name);
    const first = watched === undefined;
    if (watched === undefined) this.#watched.set(name, (watched = { listeners: new Set(), version: null }));
    const { listeners } = watched;
    // A function of its own for each watch: one listener may watch twice and leave once.
    const told = (cell: Cell): void => listener(cell);
    listeners.add(told);
    if (first) this.#hooks.first?.(name);
    return () => {
      if (!listeners.delete(told) || listeners.size > 0) return;
      this.#watched.delete(name);
      this.#hooks.last?.(name);
    };
  }

  /** Tell the listeners of a cell as it is now, unless they were told this version before. */
  tell(name: string, cell: Cell): void {
    const watched = this.#watched.get(name);
    if (watched === undefined || watched.version === cell.version) return;
    watched.version = cell.version;
    const { listeners } = watched;
    // Later: a listener must not run inside the call that changed the cell, nor after its watch has ended.
    for (const listener of listeners) queueMicrotask(() => listeners.has(listener) && listener(cell));
  }

  /** For a store that reads a cell at once when watching begins: what that first read finds is no change. */
  tellChange(name: string, cell: Cell): void {
    const watched = this.#watched.get(name);
    if (watched?.version === null) watched.version = cell.version;
    else this.tell(name, cell);
  }

  /** Ends all watches. What they return does nothing afterwards. */
  clear(): void {
    for (const { listeners } of this.#watched.values()) listeners.clear();
    this.#watched.clear();
  }
}
