import type { Clock } from "../../../core/clock.js";
import { Deadlines } from "../../../core/deadlines.js";
import type { Connections, Hearing, PgPool, PgPoolClient, PgQuery, PgResult } from "../client.js";
import { isAnswer } from "../refusals.js";
import { hearingOn } from "./hearing.js";
import { Queue } from "./queue.js";

/** A connection from the pool, and the listener for its errors. */
type Lane = { readonly client: PgPoolClient; readonly broken: () => void };

/** Each call on whichever connection is free; one connection of its own, outside of the pool, listens. */
export class PoolConnections implements Connections {
  readonly #pool: PgPool;
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #keeps: boolean;
  readonly #deadlines: Deadlines;
  /** A connection that is free and stays with us: in and out of the pool costs more than the rest of a call. */
  #kept: Lane | null = null;
  #waiting = 0;
  #closed = false;

  /** `keeps`: the pool is ours alone, so that nobody misses a connection which does not go back. */
  constructor(pool: PgPool, clock: Clock, limitMs: number, keeps: boolean) {
    this.#pool = pool;
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#keeps = keeps;
    this.#deadlines = new Deadlines(clock, limitMs);
  }

  async run(query: PgQuery): Promise<PgResult> {
    const lane = this.#takeKept() ?? (await this.#connect());
    let healthy = false;
    try {
      const result = await this.#deadlines.within(lane.client.query(query));
      healthy = true;
      return result;
    } catch (cause) {
      healthy = isAnswer(cause);
      throw cause;
    } finally {
      if (healthy) this.#giveBack(lane);
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      else lane.client.release(true);
    }
  }

  async hear(heard: (channel: string, payload: string) => void, ended: () => void): Promise<Hearing | null> {
    const { Client, options } = this.#pool;
    if (Client === undefined) return null;
    const client = new Client(options);
    // A connection that cannot say good-bye is broken, which is what we want of it.
    const end = (): void => {
      queue.close();
      client.end().catch(() => {});
    };
    const queue = new Queue(client, this.#clock, this.#limitMs);
    const hearing = hearingOn(client, queue, heard, ended, end);
    try {
      await this.#deadlines.within(client.connect());
    } catch (cause) {
      hearing.close();
      throw cause;
    }
    return { ...hearing, processId: client.processID ?? null };
  }

  close(): void {
    this.#closed = true;
    const kept = this.#takeKept();
    if (kept !== null) this.#giveBack(kept);
    this.#deadlines.close();
  }

  #takeKept(): Lane | null {
    const kept = this.#kept;
    this.#kept = null;
    return kept;
  }

  async #connect(): Promise<Lane> {
    this.#waiting += 1;
    try {
      // A connection that is free only when we have given up goes back unused.
      const client = await this.#deadlines.within(this.#pool.connect(), (late) => late.release());
      // One that breaks says so to whoever waits for an answer, and by an event that must have a listener.
      const broken = (): void => {
        if (this.#kept?.client === client) this.#takeKept()?.client.release(true);
      };
      client.on("error", broken);
      return { client, broken };
    } finally {
      this.#waiting -= 1;
    }
  }

  #giveBack(lane: Lane): void {
    // With somebody waiting for the pool it goes there, or he would wait for ever.
    if (this.#keeps && this.#kept === null && this.#waiting === 0 && !this.#closed) {
      this.#kept = lane;
    } else {
      lane.client.release();
      lane.client.removeListener("error", lane.broken);
    }
  }
}
