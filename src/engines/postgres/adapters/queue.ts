import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import type { PgClient, PgQuery, PgResult } from "../client.js";

/** One statement after the other on one connection. What has waited longer than its time limit is not sent any more. */
export class Queue {
  readonly #client: PgClient;
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #deadlines: CallTimeouts;
  readonly #silent: () => void;
  #closed = false;
  #last: Promise<unknown> = Promise.resolve();

  /** `silent`: a call was not answered in time. */
  constructor(client: PgClient, clock: Clock, limitMs: number, silent: () => void = () => {}) {
    this.#client = client;
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#silent = silent;
    this.#deadlines = new CallTimeouts(clock, limitMs);
  }

  run(query: PgQuery): Promise<PgResult> {
    const until = this.#clock.now() + this.#limitMs;
    const sent = this.#last.then(() => {
      if (this.#clock.now() >= until) throw new Error("the connection was busy for too long");
      return this.#client.query(query);
    });
    // Whoever asked hears of it; the next one only has to wait until it is over.
    this.#last = sent.catch(() => {});
    return this.#deadlines.limit(sent).catch((cause: unknown) => {
      if (!this.#closed && this.#clock.now() >= until) this.#silent();
      throw cause;
    });
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#closed = true;
    this.#deadlines.close();
  }
}
