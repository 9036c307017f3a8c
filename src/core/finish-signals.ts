import { setMaxListeners } from "node:events";

/** What asks a program to finish: one signal for all of it, and one for each hold on which somebody looks at it. */
export class FinishSignals {
  readonly #all = new AbortController();
  readonly #own = new WeakMap<object, AbortController>();

  constructor() {
    // Every task of a program may listen to it.
    setMaxListeners(0, this.#all.signal);
  }

  get all(): AbortSignal {
    return this.#all.signal;
  }

  /** A hold's own: what listens to it is gone with the hold, and does not add up for as long as the client lives. */
  of(hold: object): AbortSignal {
    const own = this.#own.get(hold) ?? new AbortController();
    this.#own.set(hold, own);
    if (this.all.aborted) own.abort(this.all.reason);
    return own.signal;
  }

  abort(holds: readonly object[], reason: Error): void {
    this.#all.abort(reason);
    for (const hold of holds) this.#own.get(hold)?.abort(reason);
  }
}
