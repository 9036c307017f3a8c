import { onAbort } from "./abort.js";
import type { Client } from "./client.js";
import { Moment, type Timed } from "./deadlines.js";
import type { Busy } from "./engine.js";
import { AcquireTimeoutError, EngineUnavailableError } from "./errors.js";
import type { Owner } from "./inspect.js";
import type { Terms } from "./options.js";

/** It was not our turn in time. */
export class NotAcquired {
  constructor(
    readonly last: Pick<LastWord, "holder" | "why">,
    readonly waitedMs: number,
  ) {}

  error(name: string): AcquireTimeoutError {
    return new AcquireTimeoutError(name, this.waitedMs, this.last.holder, this.last.why?.());
  }
}

/** What the store last said about a claim: who holds the lock, and why more is not known; null when it is. */
export type LastWord = {
  readonly holder: Owner | undefined;
  readonly why?: Busy["why"] | undefined;
  /** The claim directly before it in the queue, where that is one of the same client. */
  readonly ahead?: string | undefined;
  readonly failure: unknown;
};

/** Why a caller leaves before the grant: its time is up, its signal aborted, the client closes or drains. */
export class Cancellation implements Timed {
  readonly #client: Client;
  readonly #terms: Pick<Terms, "waitMs" | "signal">;
  readonly #moment: Moment | null;
  readonly #unlisten: (() => void) | undefined;
  #reason: "timeout" | "aborted" | "closed" | null = null;
  /** What is under way; set before anything can cancel it. */
  target!: { cancelled(): void };

  constructor(client: Client, terms: Pick<Terms, "waitMs" | "signal">, now: number) {
    this.#client = client;
    this.#terms = terms;
    const { waitMs, signal } = terms;
    // Told not to wait, it still has to wait for the answer: that call has its own limit.
    this.#moment = waitMs === undefined || waitMs === 0 ? null : new Moment();
    if (this.#moment !== null) client.deadlines.set(this.#moment, this, now + (waitMs ?? 0), now);
    this.#unlisten = signal && onAbort(signal, () => this.cancel("aborted"));
  }

  get cancelled(): boolean {
    return this.#reason !== null;
  }

  due(): void {
    this.cancel("timeout");
  }

  cancel(reason: "timeout" | "aborted" | "closed"): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.target.cancelled();
  }

  /** What the caller gets: a value when it was simply not its turn, otherwise an error. */
  outcome(name: string, last: LastWord, waitedMs: number): NotAcquired {
    if (this.#reason === "aborted") throw this.#terms.signal?.reason;
    if (this.#reason === "closed") throw this.#client.leavingError(`waiting for "${name}"`);
    if (last.failure === null) return new NotAcquired(last, waitedMs);
    throw new EngineUnavailableError(this.#client.engine.kind, `acquiring "${name}"`, last.failure);
  }

  dispose(): void {
    if (this.#moment !== null) this.#client.deadlines.clear(this.#moment);
    this.#unlisten?.();
  }
}
