import { rowLocks } from "../../sql/rows.js";
import { quoted } from "./listener.js";

/** A `Client` of `pg`, or a `Pool` where no transaction is needed. */
export interface PgQueryable {
  query(query: {
    text: string;
    values: unknown[];
  }): Promise<{ readonly rows: unknown[]; readonly rowCount: number | null }>;
}

export const { forUpdate, optimistic } = rowLocks<PgQueryable>((db) => ({
  quote: quoted,
  place: (number) => `$${number}`,
  async run(text, values) {
    const { rows, rowCount } = await db.query({ text, values });
    return { rows, changed: rowCount ?? 0 };
  },
}));
