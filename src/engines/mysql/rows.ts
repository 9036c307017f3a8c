// Beyond the usual files: locks on the rows of a program, beside the lock table.
import { shown } from "../../core/checks.js";
import { InvalidOptionError } from "../../core/errors.js";
import { rowLocks } from "../../sql/rows.js";
import { quoted } from "./statements.js";

/** A connection of `mysql2/promise`, or a pool where no transaction is needed. */
export interface MysqlQueryable {
  query(sql: string, values: unknown[]): Promise<readonly [unknown, unknown]>;
}

/**
 * Text as bytes, which mysql2 writes as a hexadecimal literal. As text it would be written with backslashes, which end it where
 * `sql_mode` has NO_BACKSLASH_ESCAPES.
 */
function bytes(value: unknown): unknown {
  return typeof value === "string" ? Buffer.from(value) : value;
}

/** mysql2 writes an object as a list of columns and values, and an array as a list: as a condition, one that may always hold. */
function checked(value: unknown): void {
  const plain = typeof value !== "object" || value === null || value instanceof Date || value instanceof Uint8Array;
  if (!plain) throw new InvalidOptionError("value", shown(value), "text, a number, a date, bytes, true, false or null");
}

export const { forUpdate, optimistic, addOrRollBack } = rowLocks<MysqlQueryable>((db) => ({
  isPool: "getConnection" in db,
  quote: quoted,
  place: (_, value) => (checked(value), typeof value === "string" ? "_utf8mb4 ?" : "?"),
  async run(text, values) {
    const [result] = await db.query(text, values.map(bytes));
    if (Array.isArray(result)) return { rows: result, changed: 0 };
    return { rows: [], changed: (result as { affectedRows?: number }).affectedRows ?? 0 };
  },
}));
