import type { Clock } from "../../../core/clock.js";
import { within } from "../../../sql/within.js";
import type { PgClient, PgQuery, PgResult } from "../client.js";

/** One statement after the other on one connection. What has waited longer than its time limit is not sent any more. */
export class Queue {
  readonly #client: PgClient;
  readonly #clock: Clock;
  readonly #limitMs: number;
  #last: Promise<unknown> = Promise.resolve();

  constructor(client: PgClient, clock: Clock, limitMs: number) {
    this.#client = client;
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  run(query: PgQuery): Promise<PgResult> {
    const until = this.#clock.now() + this.#limitMs;
    const sent = this.#last.then(() => {
      if (this.#clock.now() >= until) throw new Error("the connection was busy for too long");
      return this.#client.query(query);
    });
    this.#last = sent.catch(() => {});
    return within(this.#clock, this.#limitMs, sent);
  }
}
