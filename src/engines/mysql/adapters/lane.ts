import type { Clock } from "../../../core/clock.js";
import type { CallTimeouts } from "../../../engine-kit/call-timeouts.js";
import { type MysqlConnection, type MysqlQuery, type Row, resultSets } from "../client.js";

const PLAIN = { rowsAsArray: false, nestTables: false, namedPlaceholders: false, typeCast: true } as const;

export type LaneParts = {
  readonly clock: Clock;
  readonly limitMs: number;
  readonly heard: () => void;
  /** A call was not answered in time. */
  readonly silent: () => void;
};

/** One connection for a while. */
export class Lane {
  readonly #connection: MysqlConnection;
  readonly #parts: LaneParts;
  /** mysql2 never answers what was under way on a connection that it destroyed. */
  readonly #ends = new Set<(error: Error) => void>();
  readonly #deadlines: CallTimeouts;
  #closed = false;

  constructor(connection: MysqlConnection, deadlines: CallTimeouts, parts: LaneParts) {
    this.#connection = connection;
    this.#deadlines = deadlines;
    this.#parts = parts;
  }

  async run(sql: string, values?: unknown[]): Promise<readonly (readonly Row[])[]> {
    return resultSets(await this.ask(sql, values));
  }

  async ask(sql: string, values?: unknown[]): Promise<unknown> {
    const { clock, limitMs, heard, silent } = this.#parts;
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
      const result = await this.#deadlines.limit(answer);
      heard();
      return result;
    } catch (cause) {
      if (!this.#closed && clock.now() - sentAt >= limitMs) silent();
      throw cause;
    }
  }

  release(): void {
    this.#connection.release();
  }

  /** It does not go back: nobody else shall find it in the state that we left it in. */
  close(): void {
    this.#closed = true;
    this.#connection.destroy();
    // mysql2 says good-bye and waits for the server's, which does not come from one that is silent.
    this.#connection.stream?.destroy?.();
    for (const end of this.#ends) end(new Error("the connection was given up"));
    this.#ends.clear();
  }
}
