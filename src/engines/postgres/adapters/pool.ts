import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import type { Connections, Hearing, PgClient, PgPool, PgPoolClient, PgQuery, PgResult } from "../client.js";
import { isAnswer } from "../refusals.js";
import { guard, type Watch, watchPool } from "./guard.js";
import { hearingOn } from "./hearing.js";
import { Queue } from "./queue.js";

/** A connection from the pool, and the listener for its errors. */
type Lane = { readonly client: PgPoolClient; readonly broken: () => void };

export type PoolParts = {
  readonly pool: PgPool;
  readonly clock: Clock;
  readonly limitMs: number;
  /** The pool is ours alone, so that nobody misses a connection which does not go back. */
  readonly keeps: boolean;
  /** A call was not answered in time. */
  readonly silent: () => void;
};

const IN_TRANSACTION = "the pool gave a connection that is in the middle of a transaction";

function isOutside(client: PgClient): boolean {
  return (client.getTransactionStatus?.() ?? "I") === "I";
}

/** Each call on whichever connection is free; one connection of its own, outside of the pool, listens. */
export class PoolConnections implements Connections {
  readonly #parts: PoolParts;
  readonly #watch: Watch;
  readonly #deadlines: CallTimeouts;
  /** A connection that is free and stays with us: in and out of the pool costs more than the rest of a call. */
  #kept: Lane | null = null;
  #waiting = 0;
  #closed = false;

  constructor(parts: PoolParts) {
    this.#parts = parts;
    this.#watch = watchPool(parts.pool);
    this.#deadlines = new CallTimeouts(parts.clock, parts.limitMs);
  }

  async run(query: PgQuery): Promise<PgResult> {
    const lane = this.#takeKept() ?? (await this.#connect());
    const { clock, limitMs, silent } = this.#parts;
    const sentAt = clock.now();
    let healthy = false;
    try {
      const result = await this.#deadlines.limit(lane.client.query(query));
      // Begun by somebody who did not wait for it before he returned the connection: what we were answered is not committed.
      if (!isOutside(lane.client)) throw new Error(IN_TRANSACTION);
      healthy = true;
      return result;
    } catch (cause) {
      healthy = isAnswer(cause);
      if (!healthy && !this.#closed && clock.now() - sentAt >= limitMs) {
        this.#watch.silences += 1;
        silent();
      }
      throw cause;
    } finally {
      if (healthy) this.#giveBack(lane);
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      else lane.client.release(true);
    }
  }

  async hear(heard: (channel: string, payload: string) => void, ended: () => void): Promise<Hearing | null> {
    const { Client, options } = this.#parts.pool;
    if (Client === undefined) return null;
    const client = new Client(options);
    guard(client);
    let connected = false;
    const end = (): void => {
      queue.close();
      // One that is silent while it connects would not hear a good-bye either.
      if (!connected) client.connection?.stream?.destroy?.();
      // A connection that cannot say good-bye is broken, which is what we want of it.
      client.end().catch(() => {});
    };
    const queue = new Queue(client, this.#parts.clock, this.#parts.limitMs);
    const hearing = hearingOn(client, queue, heard, ended, end);
    try {
      await this.#deadlines.limit(client.connect());
      connected = true;
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
      const client = await this.#free();
      // One that breaks says so to whoever waits for an answer, and by an event.
      const broken = (): void => {
        if (this.#kept?.client === client) this.#takeKept()?.client.release(true);
      };
      client.on("error", broken);
      return { client, broken };
    } finally {
      this.#waiting -= 1;
    }
  }

  /** A connection that can be used. Those that cannot leave the pool, which makes new ones. */
  async #free(): Promise<PgPoolClient> {
    const { pool } = this.#parts;
    for (let left = pool.totalCount + 1; ; left -= 1) {
      const client = await this.#lent();
      guard(client);
      // Not heard of since a call went unanswered: likely as silent as that one was, and each would cost a time limit.
      const heard = (this.#watch.heard.get(client) ?? 0) === this.#watch.silences;
      const outside = heard && (await this.#outside(client));
      if (outside || (left <= 0 && isOutside(client))) return client;
      client.release(true);
      // Without a good-bye, which a silent connection would keep for as long as TCP tries.
      client.connection?.stream?.destroy?.();
      if (left <= 0) throw new Error(IN_TRANSACTION);
    }
  }

  /** In a transaction that somebody forgot to end, our call would not be committed when it is answered. */
  async #outside(client: PgPoolClient): Promise<boolean> {
    // Behind what is still under way there: it may be the end of the transaction.
    if (!isOutside(client)) await this.#deadlines.limit(client.query({ text: "ROLLBACK" })).catch(() => {});
    return isOutside(client);
  }

  async #lent(): Promise<PgPoolClient> {
    const { pool, clock, limitMs } = this.#parts;
    const asked = clock.now();
    try {
      // A connection that is free only when we have given up goes back unused.
      return await this.#deadlines.limit(pool.connect(), (late) => late.release());
    } catch (cause) {
      if (this.#closed || clock.now() - asked < limitMs) throw cause;
      throw new Error(`the pool had no free connection and made no new one within ${Math.round(limitMs)} ms`, {
        cause,
      });
    }
  }

  #giveBack(lane: Lane): void {
    this.#watch.heard.set(lane.client, this.#watch.silences);
    // With somebody waiting for the pool it goes there, or he would wait for ever.
    if (this.#parts.keeps && this.#kept === null && this.#waiting === 0 && !this.#closed) {
      this.#kept = lane;
    } else {
      lane.client.release();
      lane.client.removeListener("error", lane.broken);
    }
  }
}
