import type { Clock } from "../../../core/clock.js";
import { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import { borrowed, guardErrors, healthOf, type PoolHealth } from "../../../sql/pool-health.js";
import { type Changed, type MysqlConnection, type MysqlPool, type Row, resultSets } from "../driver.js";
import { errors } from "../errors.js";
import { PooledConnection } from "./connection.js";

/** What a pool of `mysql2` has when it is not told. */
const POOL_DEFAULT = 10;

/** In a transaction: what was done is not committed. */
const IN_TRANSACTION = 1;

/** Whatever `completion_type` says: it begins nothing new, and the connection stays. */
const COMMIT = "COMMIT AND NO CHAIN NO RELEASE";

/** What a connection that is ours until it ends is set to, whatever the server or the pool gives to new ones. */
const OWN = [
  "SET SESSION autocommit = 1, sql_select_limit = 18446744073709551615, sql_safe_updates = 0",
  "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
];

type Parts = {
  readonly pool: MysqlPool;
  readonly clock: Clock;
  readonly limitMs: number;
  /** A call was not answered in time. */
  readonly unanswered: () => void;
};

/** Each call on whichever connection is free, within the time limit. */
export class Mysql2Driver {
  readonly #parts: Parts;
  readonly #health: PoolHealth;
  /** By their limits: the usual one, and one for what takes longer. */
  readonly #timeouts = new Map<number, CallTimeouts>();
  #closed = false;

  constructor(parts: Parts) {
    this.#parts = parts;
    this.#health = healthOf(parts.pool, (health) => {
      parts.pool.on?.("connection", (connection) => {
        guardErrors(connection);
        health.answered(connection);
      });
    });
  }

  /** How many there are for calls, beside those that listen. */
  get connections(): number {
    const { connectionLimit = POOL_DEFAULT } = this.#parts.pool.config ?? {};
    // A pool of `mariadb` does not say how many it may have.
    return Math.max(1, connectionLimit - 2 * this.#health.listening);
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.#once((connection) => connection.ask(sql, values)));
  }

  /** A plain SELECT, fresh, that leaves no transaction open where a statement is none by itself. */
  async read(sql: string): Promise<readonly (readonly Row[])[]> {
    return this.#once(async (connection) => {
      await connection.ask(COMMIT);
      const rows = await connection.run(sql);
      await connection.ask(COMMIT);
      return rows;
    });
  }

  /** A statement that changes rows, and has changed them for good when this returns. */
  async change(sql: string, values: unknown[]): Promise<Changed> {
    return this.#once(async (connection) => {
      const { affectedRows, insertId, serverStatus = 0 } = (await connection.ask(sql, values)) as Changed;
      // A connection that somebody left in a transaction, or where a statement is none by itself.
      if ((serverStatus & IN_TRANSACTION) !== 0) await connection.ask(COMMIT);
      return { affectedRows, insertId };
    });
  }

  /** One connection to keep for a while. `longerMs`: what a call on it may take longer, because it waits on purpose. */
  async connection(longerMs: number): Promise<PooledConnection> {
    const connection = await this.#take(longerMs);
    try {
      for (const sql of OWN) await connection.ask(sql);
    } catch (cause) {
      connection.close();
      throw cause;
    }
    return connection;
  }

  /** Counts two connections that do nothing but listen. Says what is wrong where the pool is too small for them. */
  reserveListening(): string | null {
    const { connectionLimit = 0 } = this.#parts.pool.config ?? {};
    const needed = 2 * (this.#health.listening + 1) + 1;
    if (connectionLimit > 0 && connectionLimit < needed) {
      const engines = this.#health.listening + 1;
      return `its connectionLimit is ${connectionLimit}, and ${engines === 1 ? "an engine" : `${engines} engines`} on it need ${needed}`;
    }
    this.#health.listening += 1;
    return null;
  }

  unreserveListening(): void {
    this.#health.listening -= 1;
  }

  /** Nobody waits any longer. */
  close(): void {
    this.#closed = true;
    for (const timeouts of this.#timeouts.values()) timeouts.close();
  }

  async #once<T>(work: (connection: PooledConnection) => Promise<T>): Promise<T> {
    const connection = await this.#take(0);
    let healthy = false;
    try {
      const result = await work(connection);
      healthy = true;
      return result;
    } catch (cause) {
      healthy = errors.isAnswer(cause);
      throw cause;
    } finally {
      // What does not answer would block a place in the pool until TCP gives up, which takes a quarter of an hour.
      if (healthy) connection.release();
      else connection.close();
    }
  }

  /** A connection that can be used. Those that have not answered since a call went unanswered leave the pool. */
  async #take(longerMs: number): Promise<PooledConnection> {
    const limitMs = this.#parts.limitMs + longerMs;
    const pooled = (connection: MysqlConnection): PooledConnection =>
      new PooledConnection(connection, {
        clock: this.#parts.clock,
        limitMs,
        timeouts: this.#within(limitMs),
        answered: () => this.#health.answered(connection),
        unanswered: () => {
          this.#health.unanswered();
          if (!this.#closed) this.#parts.unanswered();
        },
      });
    for (let left = SUSPECTS_MAX; ; left -= 1) {
      const connection = await this.#borrow();
      if (left <= 0 || !this.#health.isSuspect(connection)) return pooled(connection);
      pooled(connection).close();
    }
  }

  #borrow(): Promise<MysqlConnection> {
    const { pool, clock, limitMs } = this.#parts;
    const free = new Promise<MysqlConnection>((resolve, reject) => {
      pool.getConnection((error, connection) => {
        if (error) return reject(error);
        // At once, and not when whoever awaits it goes on.
        guardErrors(connection);
        resolve(connection);
      });
    });
    return borrowed(free, (late) => late.release(), { timeouts: this.#within(limitMs), clock, limitMs });
  }

  #within(limitMs: number): CallTimeouts {
    const timeouts = this.#timeouts.get(limitMs) ?? new CallTimeouts(this.#parts.clock, limitMs);
    this.#timeouts.set(limitMs, timeouts);
    return timeouts;
  }
}

/** More connections than any pool has idle; then one of them is tried. */
const SUSPECTS_MAX = 200;
