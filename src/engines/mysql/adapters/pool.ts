import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import type { MysqlConnection, MysqlPool, Row } from "../client.js";
import { resultSets } from "../client.js";
import type { Changed } from "../quick.js";
import { isAnswer } from "../refusals.js";
import { Lane } from "./lane.js";
import { guard, type Watch, watchPool } from "./watch.js";

/** In a transaction: what was done is not committed. */
const IN_TRANSACTION = 1;

/** Whatever `completion_type` says: it begins nothing new, and the connection stays. */
const COMMIT = "COMMIT AND NO CHAIN NO RELEASE";

/** What a connection that is ours until it ends is set to, whatever the server or the pool gives to new ones. */
const OWN = [
  "SET SESSION autocommit = 1, sql_select_limit = 18446744073709551615, sql_safe_updates = 0",
  "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
];

export type PoolParts = {
  readonly pool: MysqlPool;
  readonly clock: Clock;
  readonly limitMs: number;
  /** A call was not answered in time. */
  readonly silent: () => void;
};

/** Each call on whichever connection is free, within the time limit. */
export class PoolConnections {
  readonly #parts: PoolParts;
  readonly #watch: Watch;
  /** By their limits: the usual one, and one for what takes longer. */
  readonly #deadlines = new Map<number, CallTimeouts>();
  #closed = false;

  constructor(parts: PoolParts) {
    this.#parts = parts;
    this.#watch = watchPool(parts.pool);
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.#once((lane) => lane.ask(sql, values)));
  }

  /** A plain SELECT, fresh, that leaves no transaction open where a statement is none by itself. */
  async read(sql: string): Promise<readonly (readonly Row[])[]> {
    return this.#once(async (lane) => {
      await lane.ask(COMMIT);
      const rows = await lane.run(sql);
      await lane.ask(COMMIT);
      return rows;
    });
  }

  /** A statement that changes rows, and has changed them for good when this returns. */
  async change(sql: string, values: unknown[]): Promise<Changed> {
    return this.#once(async (lane) => {
      const { affectedRows, insertId, serverStatus = 0 } = (await lane.ask(sql, values)) as Changed;
      // A connection that somebody left in a transaction, or where a statement is none by itself.
      if ((serverStatus & IN_TRANSACTION) !== 0) await lane.ask(COMMIT);
      return { affectedRows, insertId };
    });
  }

  /** One connection to keep for a while. `longerMs`: what a call on it may take longer, because it waits on purpose. */
  async lane(longerMs = 0): Promise<Lane> {
    const lane = await this.#take(longerMs);
    try {
      for (const sql of OWN) await lane.ask(sql);
    } catch (cause) {
      lane.close();
      throw cause;
    }
    return lane;
  }

  /** For two connections that do nothing but listen. Says what is wrong where the pool is too small for them. */
  listen(): string | null {
    const { connectionLimit = 0 } = this.#parts.pool.config ?? {};
    const needed = 2 * (this.#watch.listening + 1) + 1;
    if (connectionLimit > 0 && connectionLimit < needed) {
      const engines = this.#watch.listening + 1;
      return `its connectionLimit is ${connectionLimit}, and ${engines === 1 ? "an engine" : `${engines} engines`} on it need ${needed}`;
    }
    this.#watch.listening += 1;
    return null;
  }

  unlisten(): void {
    this.#watch.listening -= 1;
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#closed = true;
    for (const deadlines of this.#deadlines.values()) deadlines.close();
  }

  async #once<T>(work: (lane: Lane) => Promise<T>): Promise<T> {
    const lane = await this.#take(0);
    let healthy = false;
    try {
      const result = await work(lane);
      healthy = true;
      return result;
    } catch (cause) {
      healthy = isAnswer(cause);
      throw cause;
    } finally {
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      if (healthy) lane.release();
      else lane.close();
    }
  }

  /** A connection that can be used. Those that were not heard of since a call went unanswered leave the pool. */
  async #take(longerMs: number): Promise<Lane> {
    const { clock, limitMs, silent } = this.#parts;
    const watch = this.#watch;
    const lane = (connection: MysqlConnection): Lane =>
      new Lane(connection, this.#within(limitMs + longerMs), {
        clock,
        limitMs: limitMs + longerMs,
        heard: () => watch.heard.set(connection, watch.silences),
        silent: () => {
          watch.silences += 1;
          if (!this.#closed) silent();
        },
      });
    for (let left = SUSPECTS_MAX; ; left -= 1) {
      const connection = await this.#free();
      if (left <= 0 || (watch.heard.get(connection) ?? 0) === watch.silences) return lane(connection);
      lane(connection).close();
    }
  }

  async #free(): Promise<MysqlConnection> {
    const { pool, clock, limitMs } = this.#parts;
    const asked = clock.now();
    const free = new Promise<MysqlConnection>((resolve, reject) => {
      pool.getConnection((error, connection) => {
        if (error) return reject(error);
        // At once, and not when whoever awaits it goes on.
        guard(connection);
        resolve(connection);
      });
    });
    try {
      // A connection that is free only when we have given up goes back unused.
      return await this.#within(limitMs).limit(free, (late) => late.release());
    } catch (cause) {
      if (this.#closed || clock.now() - asked < limitMs) throw cause;
      throw new Error(`the pool had no free connection and made no new one within ${Math.round(limitMs)} ms`, {
        cause,
      });
    }
  }

  #within(limitMs: number): CallTimeouts {
    const deadlines = this.#deadlines.get(limitMs) ?? new CallTimeouts(this.#parts.clock, limitMs);
    this.#deadlines.set(limitMs, deadlines);
    return deadlines;
  }
}

/** More connections than any pool has idle; then one of them is tried. */
const SUSPECTS_MAX = 200;
