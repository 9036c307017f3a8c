import type { Clock } from "../../../core/clock.js";
import { Deadlines } from "../../../core/deadlines.js";
import { type MysqlConnection, type MysqlPool, type MysqlQuery, type Row, resultSets } from "../client.js";
import type { Changed } from "../quick.js";
import { isAnswer } from "../refusals.js";

const PLAIN = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, typeCast: true } as const;

/** Each call on whichever connection is free, within the time limit. */
export class PoolConnections {
  readonly #pool: MysqlPool;
  readonly #clock: Clock;
  readonly #limitMs: number;
  /** By their limits: the usual one, and one for what takes longer. */
  readonly #deadlines = new Map<number, Deadlines>();

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
    const lane = await this.lane();
    let healthy = false;
    try {
      const result = await lane.ask(sql, values);
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

  /** One connection to keep for a while. `longerMs`: what a call on it may take longer, because it waits on purpose. */
  async lane(longerMs = 0): Promise<Lane> {
    // A connection that is free only when we have given up goes back unused.
    const connection = await this.#within(this.#limitMs).within(this.#free(), (late) => late.release());
    return new Lane(connection, this.#within(this.#limitMs + longerMs));
  }

  /** Nobody waits any longer. */
  close(): void {
    for (const deadlines of this.#deadlines.values()) deadlines.close();
  }

  #within(limitMs: number): Deadlines {
    const deadlines = this.#deadlines.get(limitMs) ?? new Deadlines(this.#clock, limitMs);
    this.#deadlines.set(limitMs, deadlines);
    return deadlines;
  }
}

export class Lane {
  readonly #connection: MysqlConnection;
  /** mysql2 never answers what was under way on a connection that it destroyed. */
  readonly #ends = new Set<(error: Error) => void>();
  readonly #deadlines: Deadlines;

  constructor(connection: MysqlConnection, deadlines: Deadlines) {
    this.#connection = connection;
    this.#deadlines = deadlines;
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.ask(sql, values));
  }

  async ask(sql: string, values?: unknown[]): Promise<unknown> {
    const query: MysqlQuery = values === undefined ? { sql, ...PLAIN } : { sql, values, ...PLAIN };
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#ends.add(reject);
      this.#connection.query(query, (error, result) => {
        this.#ends.delete(reject);
        if (error) reject(error);
        else resolve(result);
      });
    });
    return this.#deadlines.within(answer);
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
