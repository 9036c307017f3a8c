// Beside the drivers, because both use it.
import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import type { PgConnection, PgQuery, PgResult } from "../driver.js";

/** One statement after the other on one connection. What has waited longer than its time limit is not sent any more. */
export class StatementQueue {
  readonly #client: PgConnection;
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #timeouts: CallTimeouts;
  readonly #unanswered: () => void;
  #closed = false;
  #last: Promise<unknown> = Promise.resolve();

  /** `unanswered`: a call was not answered in time. */
  constructor(client: PgConnection, clock: Clock, limitMs: number, unanswered: () => void = () => {}) {
    this.#client = client;
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#unanswered = unanswered;
    this.#timeouts = new CallTimeouts(clock, limitMs);
  }

  run(query: PgQuery): Promise<PgResult> {
    const until = this.#clock.now() + this.#limitMs;
    const sent = this.#last.then(() => {
      if (this.#clock.now() >= until) throw new Error("the connection was busy for too long");
      return this.#client.query(query);
    });
    // Whoever asked is told of a failure; the next statement only has to wait until this one is over.
    this.#last = sent.catch(() => {});
    return this.#timeouts.limit(sent).catch((cause: unknown) => {
      if (!this.#closed && this.#clock.now() >= until) this.#unanswered();
      throw cause;
    });
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#closed = true;
    this.#timeouts.close();
  }
}
