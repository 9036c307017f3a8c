import type { Owner } from "../core/inspect.js";
import { READERS_MAX } from "../core/limits.js";

/** One node or key under a name: a claim at its position in the queue. */
export type QueueEntry = {
  /** The node's name, or the key. */
  readonly key: string;
  /** Grows in the order of arrival. */
  readonly order: number;
  readonly id: string | null;
  /** Both null for an entry of another library that does not say what it wants: it takes the whole name. */
  readonly units: number | null;
  readonly capacity: number | null;
};

/** What an entry says beside its position. Other libraries leave out what they like. */
export type Known = {
  readonly token: number;
  readonly owner?: Owner;
  readonly leaseMs?: number;
  readonly data?: string;
  readonly exact?: boolean;
};

/** The record of a busy name whose capacity was changed. Entries up to `heldUpTo` held at that moment and go on holding. */
export type ChangedCapacity = { readonly capacity: number; readonly heldUpTo: number | null };

/** What a waiting claim watches, beside its own entry. */
export type WatchRule<Entry> = {
  readonly predecessor: Entry | undefined;
  /** Any entry of the name may make room. */
  readonly all: boolean;
  /** The predecessor is the only entry in the way: once it has left, the claim holds. */
  readonly last: boolean;
};

/**
 * One name at one moment: the oldest entries, as far as they were read, in the order of arrival. A claim holds when it fits
 * beside everything that came before it: the store is not asked, and nothing has to be written, for the next one to hold.
 */
export class Queue<Entry extends QueueEntry = QueueEntry> {
  readonly entries: readonly Entry[];
  readonly holders: readonly Entry[];
  /** Null while no entry states one. */
  readonly capacity: number | null;
  readonly #changed: boolean;
  readonly #taken: number;
  /** Made when it is first needed: many claims of one client may ask for their places in one reading. */
  #byKey: ReadonlyMap<string, number> | null = null;
  #whole: readonly Entry[] | null = null;

  /** False where all of it was known without that. */
  readonly wasRead: boolean;

  constructor(entries: readonly Entry[], changed: ChangedCapacity | null = null, wasRead = true) {
    this.entries = entries;
    this.wasRead = wasRead;
    this.#changed = changed !== null;
    this.capacity = changed?.capacity ?? entries.find((entry) => entry.capacity !== null)?.capacity ?? null;
    const heldUpTo = changed?.heldUpTo ?? -Infinity;
    let taken = 0;
    const waiting = entries.findIndex((entry) => {
      const sum = taken + this.unitsOf(entry);
      if (sum > this.limit && entry.order > heldUpTo) return true;
      taken = sum;
      return false;
    });
    this.holders = waiting < 0 ? entries : entries.slice(0, waiting);
    this.#taken = taken;
  }

  /** The capacity; an entry that states none takes the name as a mutex does. */
  get limit(): number {
    return this.capacity ?? 1;
  }

  get waiters(): readonly Entry[] {
    return this.entries.slice(this.holders.length);
  }

  get firstWaiter(): Entry | undefined {
    return this.entries[this.holders.length];
  }

  find(key: string): Entry | undefined {
    return this.entries[this.#indexOf(key)];
  }

  byId(id: string): Entry | undefined {
    return this.entries.find((entry) => entry.id === id);
  }

  holds({ key }: Entry): boolean {
    const n = this.#indexOf(key);
    return n >= 0 && n < this.holders.length;
  }

  isFirstWaiter({ key }: Entry): boolean {
    return this.firstWaiter?.key === key;
  }

  /** Whether one more claim, at the end, would hold at once. */
  fits(units: number): boolean {
    return this.firstWaiter === undefined && this.#taken + units <= this.limit;
  }

  /**
   * An entry that states another capacity is no claim of this kind of lock: it takes the whole name. After a change of the
   * capacity older entries still state the one before.
   */
  unitsOf({ units, capacity }: QueueEntry): number {
    return units === null || (!this.#changed && capacity !== this.capacity) ? this.limit : units;
  }

  /**
   * One wake-up for each change, never a herd (pitfalls 15 and 56). Whoever wants the whole name watches the entry before
   * it; a reader the nearest writer before it; of a semaphore's waiters the first watches all, because any holder may make
   * room, and the others the entry before them, which is touched when it is granted. `before`: the entry before the own one,
   * where not all entries were read.
   */
  watchRule(own: Entry, before = this.before(own)): WatchRule<Entry> {
    const units = this.unitsOf(own);
    if (this.limit >= READERS_MAX && units < this.limit) {
      const writer = this.#writers.findLast(({ order }) => order < own.order);
      return { predecessor: writer ?? before, all: writer === undefined, last: false };
    }
    const whole = units >= this.limit;
    const all = before === undefined || (!whole && this.isFirstWaiter(own));
    return { predecessor: before, all, last: !all && whole && this.entries[0]?.key === before.key };
  }

  /**
   * With permits the entry behind one that was just granted may hold too, or be the first waiter now, although nobody left.
   * It watches the granted entry, which therefore has to change (pitfall 56).
   */
  mustTouch(granted: Entry): boolean {
    return this.isPermit(granted) && this.entries.at(-1)?.key !== granted.key;
  }

  /** One of several that may hold at once and are no readers. */
  isPermit(entry: Entry): boolean {
    return this.unitsOf(entry) < this.limit && this.limit < READERS_MAX;
  }

  /** The entry directly before this one, as far as they were read. */
  before({ key }: Entry): Entry | undefined {
    return this.entries[this.#indexOf(key) - 1];
  }

  get #writers(): readonly Entry[] {
    return (this.#whole ??= this.entries.filter((entry) => this.unitsOf(entry) >= this.limit));
  }

  /** −1 where it is not there. Who has just arrived is the last. */
  #indexOf(key: string): number {
    if (this.entries.at(-1)?.key === key) return this.entries.length - 1;
    this.#byKey ??= new Map(this.entries.map((entry, n) => [entry.key, n]));
    return this.#byKey.get(key) ?? -1;
  }
}
