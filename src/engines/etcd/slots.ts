// Beyond the common files of an engine: keys are used again, because etcd keeps those that were removed in its index.

/**
 * The keys of this engine's claims, a few for each name, used again and again. etcd keeps the key of a claim that
 * has left in its index until it is compacted, which is off by default, and every reading of the name walks over all of them:
 * with a key for each claim a busy lock would get slower without end.
 */
export class Slots {
  readonly #engine: string;
  #generation = 0;
  readonly #names = new Map<string, { used: number; next: number; readonly free: string[] }>();

  /** `engine`: told apart by it from all others. */
  constructor(engine: string) {
    this.#engine = engine;
  }

  take(name: string): string {
    const slots = this.#names.get(name) ?? { used: 0, next: 0, free: [] };
    this.#names.set(name, slots);
    slots.used += 1;
    // In turn: who came in the same order as before has the same keys, and whoever watched one of them still does.
    return slots.free.shift() ?? `${this.#engine}-${this.#generation}-${slots.next++}`;
  }

  /**
   * `vacant`: there is no such key, and nothing under way could hit what will. Otherwise it is never used again: a name forgets
   * its numbers when it is idle, so that they are new from now on for all names.
   */
  leave(name: string, slot: string, vacant: boolean): void {
    const slots = this.#names.get(name);
    if (slots === undefined) throw new Error("invariant: a slot is left once");
    slots.used -= 1;
    if (vacant) slots.free.push(slot);
    else this.#generation += 1;
    if (slots.used === 0) this.#names.delete(name);
  }
}
