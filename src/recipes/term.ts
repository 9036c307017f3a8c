import type { Hold } from "../core/hold.js";
import type { HoldState } from "../core/hold-state.js";
import type { Owner } from "../core/inspect.js";

/** A leader's time in office. */
export class Term implements AsyncDisposable {
  readonly #hold: Hold;
  readonly value: string;
  readonly owner: Owner;

  /** @internal */
  constructor(hold: Hold, { value, owner }: { readonly value: string; readonly owner: Owner }) {
    this.#hold = hold;
    this.value = value;
    this.owner = owner;
  }

  /** Larger for each later term. Hand it to what the leader writes to. */
  get token(): number {
    return this.#hold.token;
  }

  /** Aborted with a `LockLostError` before another can be elected. */
  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  /** Aborted when `locks.drain()` asks to resign; still the leader. */
  get draining(): AbortSignal {
    return this.#hold.draining;
  }

  get state(): HoldState {
    return this.#hold.state;
  }

  get remainingMs(): number {
    return this.#hold.remainingMs;
  }

  /** Throws when this is not the leader any more. Compares clocks, so it is right even after a stalled event loop. */
  throwIfLost(): void {
    this.#hold.throwIfLost();
  }

  /** Step down; the next one is elected. Rejects with `LockLostError` when the term had been lost. */
  resign(): Promise<void> {
    return this.#hold.release();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.resign();
  }
}
