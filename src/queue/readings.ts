import { behindOthers } from "../core/turn.js";

/**
 * Readings of queues. Claims of one name that ask in the same turn of the event loop share one reading, and those that come
 * while one is under way share the next.
 */
export class Readings<Want, Found> {
  readonly #read: (wants: readonly Want[]) => Promise<readonly Found[]>;
  readonly #gathering = new Map<string, { readonly wants: Want[]; readonly found: Promise<readonly Found[]> }>();
  readonly #underWay = new Map<string, Promise<unknown>>();

  /** `read`: what each of them wants to know of one name, in the order in which they asked. */
  constructor(read: (wants: readonly Want[]) => Promise<readonly Found[]>) {
    this.#read = read;
  }

  async one(name: string, want: Want): Promise<Found> {
    let batch = this.#gathering.get(name);
    if (batch === undefined) {
      const wants: Want[] = [];
      batch = { wants, found: this.#next(name, wants) };
      this.#gathering.set(name, batch);
    }
    const n = batch.wants.push(want) - 1;
    return at(await batch.found, n);
  }

  async #next(name: string, wants: readonly Want[]): Promise<readonly Found[]> {
    // Whoever asks later in this turn asks in time.
    await (this.#underWay.get(name) ?? new Promise<void>(behindOthers));
    this.#gathering.delete(name);
    const found = this.#read(wants);
    const done = found.then(
      () => {},
      () => {},
    );
    this.#underWay.set(name, done);
    // Before whoever waits for it reads, and is under way in its place.
    void done.then(() => this.#underWay.delete(name));
    return found;
  }
}

export function at<T>(list: readonly T[], n: number): T {
  const one = list[n];
  if (one === undefined) throw new Error("invariant: an answer for each question");
  return one;
}
