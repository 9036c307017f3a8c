import type { Clock } from "../../../core/clock.js";
import { within } from "../../../sql/within.js";
import type { Connections, Hearing, PgPool, PgQuery, PgResult } from "../client.js";
import { isAnswer } from "../refusals.js";
import { hearingOn } from "./hearing.js";
import { Queue } from "./queue.js";

/** Each call on whichever connection is free; one connection of its own, outside of the pool, listens. */
export class PoolConnections implements Connections {
  readonly #pool: PgPool;
  readonly #clock: Clock;
  readonly #limitMs: number;

  constructor(pool: PgPool, clock: Clock, limitMs: number) {
    this.#pool = pool;
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  async run(query: PgQuery): Promise<PgResult> {
    const until = this.#clock.now() + this.#limitMs;
    // A connection that is free only when we have given up goes back unused.
    const client = await within(this.#clock, this.#limitMs, this.#pool.connect(), (late) => late.release());
    // A connection that breaks says so twice: to whoever waits for an answer, and as an event that must have a listener.
    client.on("error", hush);
    let healthy = false;
    try {
      const result = await within(this.#clock, until - this.#clock.now(), client.query(query));
      healthy = true;
      return result;
    } catch (cause) {
      healthy = isAnswer(cause);
      throw cause;
    } finally {
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      client.release(!healthy);
      if (healthy) client.removeListener("error", hush);
    }
  }

  async hear(heard: (channel: string, payload: string) => void, ended: () => void): Promise<Hearing | null> {
    const { Client, options } = this.#pool;
    if (Client === undefined) return null;
    const client = new Client(options);
    const end = (): void => void client.end().catch(() => {});
    const hearing = hearingOn(client, new Queue(client, this.#clock, this.#limitMs), heard, ended, end);
    try {
      await within(this.#clock, this.#limitMs, client.connect());
    } catch (cause) {
      hearing.close();
      throw cause;
    }
    return { ...hearing, processId: client.processID ?? null };
  }
}

function hush(): void {}
