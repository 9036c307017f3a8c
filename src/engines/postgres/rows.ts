// Beyond the usual files: locks on the rows of a program, beside the lock table.
import { rowLocks } from "../../sql/rows.js";
import { quoted } from "./statements.js";

/** A `Client` of `pg`, or a `Pool` where no transaction is needed. */
export interface PgQueryable {
  query(query: {
    text: string;
    values: unknown[];
  }): Promise<{ readonly rows: unknown[]; readonly rowCount: number | null; readonly command?: string }>;
}

export const { forUpdate, optimistic, addOrRollBack } = rowLocks<PgQueryable>((db) => ({
  isPool: "totalCount" in db,
  quote: quoted,
  place: (number) => `$${number}`,
  async run(text, values) {
    const { rows, rowCount, command } = await db.query({ text, values });
    return { rows, changed: rowCount ?? 0, command };
  },
}));
