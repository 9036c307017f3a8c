import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import { borrowed, guardErrors, healthOf, type PoolHealth } from "../../../sql/pool-health.js";
import type {
  Driver,
  ListeningConnection,
  OnNotification,
  PgConnection,
  PgPool,
  PgPoolClient,
  PgQuery,
  PgResult,
} from "../driver.js";
import { errors } from "../errors.js";
import { notificationsOf } from "./notifications.js";
import { StatementQueue } from "./statement-queue.js";

/** A connection from the pool, and the listener for its errors. */
type Borrowed = { readonly client: PgPoolClient; readonly onError: () => void };

type Parts = {
  readonly pool: PgPool;
  readonly clock: Clock;
  readonly limitMs: number;
  /** The pool is ours alone, so that nobody misses a connection which does not go back. */
  readonly keeps: boolean;
  /** A call was not answered in time. */
  readonly unanswered: () => void;
};

/** What a `Pool` of `pg` has when it is not told. */
const POOL_DEFAULT = 10;

const IN_TRANSACTION = "the pool gave a connection that is in the middle of a transaction";

function isOutside(client: PgConnection): boolean {
  return (client.getTransactionStatus?.() ?? "I") === "I";
}

/** Without a termination message: a silent connection would stay open for as long as TCP tries to send it. */
function discard(client: PgPoolClient): void {
  client.release(true);
  client.connection?.stream?.destroy?.();
}

/** Each call on whichever connection is free; one connection of its own, outside of the pool, listens. */
export class PgPoolDriver implements Driver {
  readonly #parts: Parts;
  readonly #health: PoolHealth;
  readonly #timeouts: CallTimeouts;
  /** A connection that is free and stays with us: in and out of the pool costs more than the rest of a call. */
  #kept: Borrowed | null = null;
  #waiting = 0;
  #closed = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#health = healthOf(parts.pool, (health) => {
      // A pool tells of both before it takes its own listener for errors away.
      parts.pool.on?.("connect", (client) => {
        guardErrors(client);
        health.answered(client);
      });
      parts.pool.on?.("acquire", guardErrors);
    });
    this.#timeouts = new CallTimeouts(parts.clock, parts.limitMs);
  }

  get connections(): number {
    return this.#parts.pool.options.max ?? POOL_DEFAULT;
  }

  async run(query: PgQuery): Promise<PgResult> {
    const lent = this.#takeKept() ?? (await this.#connect());
    const { clock, limitMs, unanswered } = this.#parts;
    const sentAt = clock.now();
    let healthy = false;
    try {
      const result = await this.#timeouts.limit(lent.client.query(query));
      // Begun by somebody who returned the connection without waiting for it: what we were answered is not committed.
      if (!isOutside(lent.client)) throw new Error(IN_TRANSACTION);
      healthy = true;
      return result;
    } catch (cause) {
      healthy = errors.isAnswer(cause);
      if (!healthy && !this.#closed && clock.now() - sentAt >= limitMs) {
        this.#health.unanswered();
        // It has not answered since, like those in the pool.
        const kept = this.#takeKept();
        if (kept !== null) discard(kept.client);
        unanswered();
      }
      throw cause;
    } finally {
      if (healthy) this.#giveBack(lent);
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      else lent.client.release(true);
    }
  }

  async listen(onNotification: OnNotification, onEnd: () => void): Promise<ListeningConnection | null> {
    const { Client, options } = this.#parts.pool;
    if (Client === undefined) return null;
    const client = new Client(options);
    guardErrors(client);
    let connected = false;
    const onClose = (): void => {
      queue.close();
      // One that is silent while it connects would not read a termination message either.
      if (!connected) client.connection?.stream?.destroy?.();
      // A connection that cannot send its termination message is broken, and over as well.
      client.end().catch(() => {});
    };
    const queue = new StatementQueue(client, this.#parts.clock, this.#parts.limitMs);
    const connection = notificationsOf(client, queue, { onNotification, onEnd, onClose });
    try {
      await this.#timeouts.limit(client.connect());
      connected = true;
    } catch (cause) {
      connection.close();
      throw cause;
    }
    return { ...connection, processId: client.processID ?? null };
  }

  close(): void {
    this.#closed = true;
    const kept = this.#takeKept();
    if (kept !== null) this.#giveBack(kept);
    this.#timeouts.close();
  }

  #takeKept(): Borrowed | null {
    const kept = this.#kept;
    this.#kept = null;
    return kept;
  }

  async #connect(): Promise<Borrowed> {
    this.#waiting += 1;
    try {
      const client = await this.#free();
      // A connection that breaks rejects what is under way, and emits an event.
      const onError = (): void => {
        if (this.#kept?.client === client) this.#takeKept()?.client.release(true);
      };
      client.on("error", onError);
      return { client, onError };
    } finally {
      this.#waiting -= 1;
    }
  }

  /** A connection that can be used. Those that cannot leave the pool, which makes new ones. */
  async #free(): Promise<PgPoolClient> {
    const { pool, clock, limitMs } = this.#parts;
    const limit = { timeouts: this.#timeouts, clock, limitMs };
    for (let left = pool.totalCount + 1; ; left -= 1) {
      const client = await borrowed(pool.connect(), (late) => late.release(), limit);
      guardErrors(client);
      const outside = !this.#health.isSuspect(client) && (await this.#outside(client));
      if (outside || (left <= 0 && isOutside(client))) return client;
      discard(client);
      if (left <= 0) throw new Error(IN_TRANSACTION);
    }
  }

  /** In a transaction that somebody forgot to end, our call would not be committed when it is answered. */
  async #outside(client: PgPoolClient): Promise<boolean> {
    // Behind what is still under way there: it may be the end of the transaction. Whether it helped is seen below.
    if (!isOutside(client)) await this.#timeouts.limit(client.query({ text: "ROLLBACK" })).catch(() => {});
    return isOutside(client);
  }

  #giveBack(lent: Borrowed): void {
    this.#health.answered(lent.client);
    // With somebody waiting for the pool it goes there, or that call would wait for ever.
    if (this.#parts.keeps && this.#kept === null && this.#waiting === 0 && !this.#closed) {
      this.#kept = lent;
    } else {
      lent.client.release();
      lent.client.removeListener("error", lent.onError);
    }
  }
}
