import type { Clock } from "../../../core/clock.js";
import { Deadlines } from "../../../core/deadlines.js";
import type { PgClient, PgQuery, PgResult } from "../client.js";

/** One statement after the other on one connection. What has waited longer than its time limit is not sent any more. */
export class Queue {
  readonly #client: PgClient;
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #deadlines: Deadlines;
  #last: Promise<unknown> = Promise.resolve();

  constructor(client: PgClient, clock: Clock, limitMs: number) {
    this.#client = client;
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#deadlines = new Deadlines(clock, limitMs);
  }

  run(query: PgQuery): Promise<PgResult> {
    const until = this.#clock.now() + this.#limitMs;
    const sent = this.#last.then(() => {
      if (this.#clock.now() >= until) throw new Error("the connection was busy for too long");
      return this.#client.query(query);
    });
    // Whoever asked hears of it; the next one only has to wait until it is over.
    this.#last = sent.catch(() => {});
    return this.#deadlines.within(sent);
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#deadlines.close();
  }
}
