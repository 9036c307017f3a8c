// Beside the driver: one connection of its pool.
import type { Clock } from "../../../core/clock.js";
import type { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import { type MysqlConnection, type MysqlQuery, type Row, resultSets } from "../driver.js";

const PLAIN = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, typeCast: true } as const;

export type ConnectionParts = {
  readonly clock: Clock;
  readonly limitMs: number;
  readonly timeouts: CallTimeouts;
  readonly answered: () => void;
  /** A call was not answered in time. */
  readonly unanswered: () => void;
};

/** One connection of the pool, for a while. */
export class PooledConnection {
  readonly #connection: MysqlConnection;
  readonly #parts: ConnectionParts;
  /** mysql2 never answers what was under way on a connection that it destroyed. */
  readonly #ends = new Set<(error: Error) => void>();
  #closed = false;

  constructor(connection: MysqlConnection, parts: ConnectionParts) {
    this.#connection = connection;
    this.#parts = parts;
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.ask(sql, values));
  }

  async ask(sql: string, values?: unknown[]): Promise<unknown> {
    const { clock, limitMs, timeouts, answered, unanswered } = this.#parts;
    const sentAt = clock.now();
    const query: MysqlQuery = values === undefined ? { sql, ...PLAIN } : { sql, values, ...PLAIN };
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#ends.add(reject);
      this.#connection.query(query, (error, result) => {
        this.#ends.delete(reject);
        if (error) reject(error);
        else resolve(result);
      });
    });
    try {
      const result = await timeouts.limit(answer);
      answered();
      return result;
    } catch (cause) {
      if (!this.#closed && clock.now() - sentAt >= limitMs) unanswered();
      throw cause;
    }
  }

  release(): void {
    const { clock, limitMs, timeouts } = this.#parts;
    const released = this.#connection.release();
    if (!(released instanceof Promise)) return;
    const askedAt = clock.now();
    // One that goes silent on its way back would keep its place in the pool.
    timeouts.limit(released).catch(() => clock.now() - askedAt >= limitMs && this.close());
  }

  /** It does not go back to the pool: nobody else shall find it in the state that we left it in. */
  close(): void {
    this.#closed = true;
    this.#connection.destroy();
    // mysql2 waits until the server ends the connection, which one that is silent does not do.
    this.#connection.stream?.destroy?.();
    for (const end of this.#ends) end(new Error("the connection was given up"));
  }
}
