import { READERS_MAX } from "../../core/limits.js";
import { type Entry, entryOf, markedId } from "./names.js";

/**
 * A capacity that was set on purpose. It counts for the claims that were there then; when they have left, what the first
 * claim says counts again. `heldTo`: all up to this place held at that moment, and go on holding.
 */
export type Ruling = { readonly capacity: number; readonly heldTo: number | null };

/** Everybody under one name, in order of arrival: who holds, who waits, and whom to watch follow from it alone. */
export class Line {
  readonly entries: readonly Entry[];
  readonly capacity: number;
  readonly #marks: ReadonlySet<string>;
  /** Holders stand in front of all others. */
  readonly #holders: number;

  /** The entries in order of arrival. */
  constructor(entries: readonly Entry[], marks: ReadonlySet<string>, ruling: Ruling | null = null) {
    this.entries = entries;
    this.#marks = marks;
    this.capacity = ruling?.capacity ?? entries.find(({ id }) => id !== null)?.capacity ?? 1;
    let taken = 0;
    let holders = 0;
    for (const entry of this.entries) {
      taken += this.#unitsOf(entry, ruling !== null);
      const held = ruling !== null && ruling.heldTo !== null && entry.sequence <= ruling.heldTo;
      if (taken > this.capacity && !held) break;
      holders += 1;
    }
    this.#holders = holders;
  }

  get holders(): readonly Entry[] {
    return this.entries.slice(0, this.#holders);
  }

  get waiters(): readonly Entry[] {
    return this.entries.slice(this.#holders);
  }

  find(node: string): Entry | undefined {
    return this.entries.find((entry) => entry.node === node);
  }

  byId(id: string): Entry | undefined {
    return this.entries.find((entry) => entry.id === id);
  }

  isMarked(id: string): boolean {
    return this.#marks.has(id);
  }

  holds(entry: Entry): boolean {
    return this.entries.indexOf(entry) < this.#holders;
  }

  isFirstWaiter(entry: Entry): boolean {
    return this.entries[this.#holders] === entry;
  }

  /**
   * Whom to wait for: a reader for the nearest writer before it, everybody else for whoever stands before. So the end
   * or the change of one node wakes those whose turn it may be and nobody else.
   */
  blockerOf(entry: Entry): Entry | undefined {
    const before = this.entries.slice(0, this.entries.indexOf(entry));
    const reads = this.capacity === READERS_MAX && entry.units < this.capacity;
    const blocks = (other: Entry): boolean => !reads || this.#unitsOf(other, false) >= this.capacity;
    return before.findLast(blocks) ?? before.at(-1);
  }

  /** Permits are freed by any holder, not only by the one before: the first in line looks at all (`pitfalls.md` 56). */
  watchesAll(entry: Entry): boolean {
    return isPermit(entry.units, this.capacity) && this.isFirstWaiter(entry);
  }

  /** Whoever states another capacity is no claim of this kind of lock: it counts as one that takes all. */
  #unitsOf(entry: Entry, anyCapacity: boolean): number {
    const ours = entry.id !== null && (anyCapacity || entry.capacity === this.capacity);
    return ours ? entry.units : this.capacity;
  }
}

/** A part of a semaphore: more than one may hold, and it is no reader. */
export function isPermit(units: number, capacity: number): boolean {
  return units < capacity && capacity !== READERS_MAX;
}

/** What the nodes of a folder are: claims, in no order yet, and the ids that must not claim any more. */
export function sortedOut(nodes: readonly string[]): {
  readonly entries: Entry[];
  readonly marks: ReadonlySet<string>;
} {
  return {
    entries: nodes.map(entryOf).filter((entry) => entry !== null),
    marks: new Set(nodes.map(markedId).filter((id) => id !== undefined)),
  };
}
