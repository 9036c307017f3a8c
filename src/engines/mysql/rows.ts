import { rowLocks } from "../../sql/rows.js";
import { quoted } from "./schema.js";

/** A connection of `mysql2/promise`, or a pool where no transaction is needed. */
export interface MysqlQueryable {
  query(sql: string, values: unknown[]): Promise<readonly [unknown, unknown]>;
}

export const { forUpdate, optimistic } = rowLocks<MysqlQueryable>((db) => ({
  quote: quoted,
  place: () => "?",
  async run(text, values) {
    const [result] = await db.query(text, values);
    if (Array.isArray(result)) return { rows: result, changed: 0 };
    return { rows: [], changed: (result as { affectedRows?: number }).affectedRows ?? 0 };
  },
}));
