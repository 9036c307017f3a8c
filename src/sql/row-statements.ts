import { shown } from "../core/checks.js";
import { InvalidOptionError } from "../core/errors.js";

/** A row by its key: `{ id: 42 }`, or several columns. Values are passed on as data, names are quoted. */
export type RowKey = { readonly table: string; readonly key: Readonly<Record<string, unknown>> };

/** How one database writes a statement. */
export type Writing = {
  readonly quote: (identifier: string) => string;
  /** What stands in the text for a value, which is the n-th. */
  readonly place: (number: number, value: unknown) => string;
};

/** The same, and what it answers. */
export type Dialect = Writing & {
  /** A pool gives each statement another connection: a transaction cannot be opened on it. */
  readonly isPool: boolean;
  /** `command`: what the server says that it did, where it says so. */
  readonly run: (
    text: string,
    values: unknown[],
  ) => Promise<{ readonly rows: readonly unknown[]; readonly changed: number; readonly command?: string | undefined }>;
};

export function selection(dialect: Writing, where: RowKey): { readonly text: string; readonly values: unknown[] } {
  const entries = Object.entries(where.key);
  if (entries.length === 0) throw new InvalidOptionError("key", "it names no column", "one column at least");
  const matches = entries.map(([column, value], at) => `${dialect.quote(column)} = ${dialect.place(at + 1, value)}`);
  const text = `SELECT * FROM ${tableOf(dialect, where)} WHERE ${matches.join(" AND ")}`;
  return { text, values: entries.map(([, value]) => value) };
}

/** `table`, or `schema.table`. */
export function tableOf({ quote }: Writing, { table }: RowKey): string {
  if (typeof table !== "string" || table === "") throw new InvalidOptionError("table", shown(table), "a table's name");
  return table.split(".").map(quote).join(".");
}
