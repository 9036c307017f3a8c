import type { Clock } from "../../../core/clock.js";
import { within } from "../../../sql/within.js";
import { type MysqlConnection, type MysqlPool, type MysqlQuery, type Row, resultSets } from "../client.js";
import type { Changed } from "../quick.js";
import { isAnswer } from "../refusals.js";

const PLAIN = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, typeCast: true } as const;

/** Each call on whichever connection is free, within the time limit. */
export class PoolConnections {
  readonly #pool: MysqlPool;
  readonly #clock: Clock;
  readonly #limitMs: number;

  constructor(pool: MysqlPool, clock: Clock, limitMs: number) {
    this.#pool = pool;
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.#once(sql, values));
  }

  /** A statement that changes rows. */
  async change(sql: string, values: unknown[]): Promise<Changed> {
    const { affectedRows, insertId } = (await this.#once(sql, values)) as Changed;
    return { affectedRows, insertId };
  }

  async #once(sql: string, values?: unknown[]): Promise<unknown> {
    const until = this.#clock.now() + this.#limitMs;
    const lane = await this.lane();
    let healthy = false;
    try {
      const result = await lane.ask(sql, values, until - this.#clock.now());
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

  #free(): Promise<MysqlConnection> {
    return new Promise((resolve, reject) => {
      this.#pool.getConnection((error, connection) => (error ? reject(error) : resolve(connection)));
    });
  }

  /** One connection to keep for a while. */
  async lane(): Promise<Lane> {
    // A connection that is free only when we have given up goes back unused.
    const connection = await within(this.#clock, this.#limitMs, this.#free(), (late) => late.release());
    return new Lane(connection, this.#clock, this.#limitMs);
  }
}

export class Lane {
  readonly #connection: MysqlConnection;
  /** mysql2 never answers what was under way on a connection that it destroyed. */
  readonly #ends = new Set<(error: Error) => void>();
  readonly #clock: Clock;
  readonly #limitMs: number;

  constructor(connection: MysqlConnection, clock: Clock, limitMs: number) {
    this.#connection = connection;
    this.#clock = clock;
    this.#limitMs = limitMs;
  }

  async run(sql: string, values?: unknown[], limitMs = this.#limitMs): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.ask(sql, values, limitMs));
  }

  async ask(sql: string, values?: unknown[], limitMs = this.#limitMs): Promise<unknown> {
    const query: MysqlQuery = values === undefined ? { sql, ...PLAIN } : { sql, values, ...PLAIN };
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#ends.add(reject);
      this.#connection.query(query, (error, result) => {
        this.#ends.delete(reject);
        if (error) reject(error);
        else resolve(result);
      });
    });
    return within(this.#clock, limitMs, answer);
  }

  release(): void {
    this.#connection.release();
  }

  /** It does not go back: nobody else shall find it in the state that we left it in. */
  close(): void {
    this.#connection.destroy();
    for (const end of this.#ends) end(new Error("the connection was given up"));
    this.#ends.clear();
  }
}
