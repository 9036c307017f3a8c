import {
  changeOptimistically,
  type Dialect,
  type ForUpdateOptions,
  type OptimisticAnswer,
  type OptimisticOptions,
  selectForUpdate,
} from "../../sql/rows.js";
import { quoted } from "./listener.js";

/** A `Client` of `pg`, or a `Pool` where no transaction is needed. */
export interface PgQueryable {
  query(query: {
    text: string;
    values: unknown[];
  }): Promise<{ readonly rows: unknown[]; readonly rowCount: number | null }>;
}

/**
 * Lock a row in a transaction of yours, until it ends, and get it; null when there is none. One round trip, and every other
 * transaction that wants the row waits meanwhile: keep it short.
 */
export async function forUpdate<Row extends object = Record<string, unknown>>(
  tx: PgQueryable,
  options: ForUpdateOptions,
): Promise<Row | null> {
  return selectForUpdate<Row>(dialect(tx), options);
}

/**
 * Change a row without locking it: read it, and write only if its version is still the one that was read; otherwise try
 * again. Two round trips when nobody interferes, two more for each conflict.
 */
export async function optimistic<Row extends object = Record<string, unknown>>(
  db: PgQueryable,
  options: OptimisticOptions,
  change: (row: Row) => Partial<Row> | null | Promise<Partial<Row> | null>,
): Promise<OptimisticAnswer<Row>> {
  return changeOptimistically(dialect(db), options, change);
}

function dialect(db: PgQueryable): Dialect {
  return {
    quote: quoted,
    place: (number) => `$${number}`,
    async run(text, values) {
      const { rows, rowCount } = await db.query({ text, values });
      return { rows, changed: rowCount ?? 0 };
    },
  };
}
