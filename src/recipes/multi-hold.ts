import { onAbort } from "../core/abort.js";
import { MisuseError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import type { HoldState } from "../core/hold-state.js";

/** Several locks in one hand: lost when any of them is lost. */
export class MultiHold implements AsyncDisposable {
  /** One for each lock, in the order in which the locks were given. */
  readonly holds: readonly Hold[];
  readonly #giveBack: () => Promise<void>;
  #released: Promise<void> | null = null;
  #abort: AbortController | null = null;
  /** A hold that was taken again inside another one shares its signal, and that one may go on for long. */
  readonly #unlisten: (() => void)[] = [];

  /** @internal */
  constructor(holds: readonly Hold[], giveBack: () => Promise<void>) {
    this.holds = holds;
    this.#giveBack = giveBack;
  }

  /** The fencing number of each lock, by its name. */
  get tokens(): ReadonlyMap<string, number> {
    const tokens = new Map(this.holds.map((hold) => [hold.name, hold.token]));
    if (tokens.size === this.holds.length) return tokens;
    throw new MisuseError("Two of these locks have one name, on different stores: take their tokens from `holds`.");
  }

  /** Aborted with the `LockLostError` of the first lock that is lost. */
  get signal(): AbortSignal {
    if (this.#abort === null) {
      const abort = (this.#abort = new AbortController());
      for (const { signal } of this.holds) {
        if (signal.aborted) abort.abort(signal.reason);
        else if (this.#released === null) this.#unlisten.push(onAbort(signal, () => abort.abort(signal.reason)));
      }
    }
    return this.#abort.signal;
  }

  /** The worst of all. */
  get state(): HoldState {
    const states = new Set(this.holds.map((hold) => hold.state));
    const worst = (["lost", "released", "jeopardy"] as const).find((state) => states.has(state));
    return worst ?? "held";
  }

  /** How long it is safe to go on with all of them without another confirmed renewal. */
  get remainingMs(): number {
    return Math.min(...this.holds.map((hold) => hold.remainingMs));
  }

  /** Throws when any of them is not held any more. */
  throwIfLost(): void {
    for (const hold of this.holds) hold.throwIfLost();
  }

  /** Give them all back, in reverse order. Rejects with `LockLostError` when one had been lost. */
  release(): Promise<void> {
    return (this.#released ??= this.#giveBack().finally(() => {
      for (const unlisten of this.#unlisten) unlisten();
    }));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }
}
