import {
  changeOptimistically,
  type Dialect,
  type ForUpdateOptions,
  type OptimisticAnswer,
  type OptimisticOptions,
  selectForUpdate,
} from "../../sql/rows.js";
import { quoted } from "./schema.js";

/** A connection of `mysql2/promise`, or a pool where no transaction is needed. */
export interface MysqlQueryable {
  query(sql: string, values: unknown[]): Promise<readonly [unknown, unknown]>;
}

/**
 * Lock a row in a transaction of yours, until it ends, and get it; null when there is none. One round trip, and every other
 * transaction that wants the row waits meanwhile: keep it short.
 */
export async function forUpdate<Row extends object = Record<string, unknown>>(
  tx: MysqlQueryable,
  options: ForUpdateOptions,
): Promise<Row | null> {
  return selectForUpdate<Row>(dialect(tx), options);
}

/**
 * Change a row without locking it: read it, and write only if its version is still the one that was read; otherwise try
 * again. Two round trips when nobody interferes, two more for each conflict. Not inside a transaction: under repeatable read it
 * would read the same old version for ever.
 */
export async function optimistic<Row extends object = Record<string, unknown>>(
  db: MysqlQueryable,
  options: OptimisticOptions,
  change: (row: Row) => Partial<Row> | null | Promise<Partial<Row> | null>,
): Promise<OptimisticAnswer<Row>> {
  return changeOptimistically(dialect(db), options, change);
}

function dialect(db: MysqlQueryable): Dialect {
  return {
    quote: quoted,
    place: () => "?",
    async run(text, values) {
      const [result] = await db.query(text, values);
      if (Array.isArray(result)) return { rows: result, changed: 0 };
      return { rows: [], changed: (result as { affectedRows?: number }).affectedRows ?? 0 };
    },
  };
}
