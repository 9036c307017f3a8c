import { shown } from "../core/checks.js";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import { type Dialect, type RowKey, selection, tableOf, type Writing } from "./row-statements.js";

export type AddOptions = RowKey & {
  /** What to add to which columns: `{ left: -1 }`; with `version: 1` also those who use `optimistic` see the change. */
  readonly add: Readonly<Record<string, number>>;
};

/** `left`: the callback said no, and nothing was changed; `row` is what it would have become. */
export type AddAnswer<Row> =
  | { readonly kind: "written"; readonly row: Row }
  | { readonly kind: "left"; readonly row: Row }
  | { readonly kind: "missing" };

type Statement = { readonly text: string; readonly values: unknown[] };

/** The statement that adds, and the one that reads the row afterwards: not every database can do both in one. */
export function addition(dialect: Writing, options: AddOptions): { readonly add: Statement; readonly look: Statement } {
  const { quote, place } = dialect;
  const look = selection(dialect, options);
  const values: unknown[] = [];
  const given = (value: unknown): string => place(values.push(value), value);
  const sets = Object.entries(options.add).map(([column, amount]) => {
    if (!Number.isFinite(amount)) throw new InvalidOptionError(`add.${column}`, shown(amount), "a finite number");
    return `${quote(column)} = ${quote(column)} + ${given(amount)}`;
  });
  if (sets.length === 0) throw new InvalidOptionError("add", "it names no column", "one column at least");
  const matches = Object.entries(options.key).map(([column, value]) => `${quote(column)} = ${given(value)}`);
  const text = `UPDATE ${tableOf(dialect, options)} SET ${sets.join(", ")} WHERE ${matches.join(" AND ")}`;
  return { add: { text, values }, look };
}

export function checkOneRow(changed: number): void {
  if (changed > 1) throw new MisuseError(`the key names ${changed} rows: it must name one`);
}

/** A callback that forgot to answer, or that answers a promise where nobody can wait, has not said yes. */
export function checkAnswer(accepted: unknown): asserts accepted is boolean {
  if (typeof accepted !== "boolean") throw new MisuseError("the callback must answer true or false");
}

export async function addInTransaction<Row>(
  { isPool, run, ...writing }: Dialect,
  options: AddOptions,
  accept: (row: Row) => boolean | Promise<boolean>,
): Promise<AddAnswer<Row>> {
  if (isPool) throw new MisuseError("a pool gives each statement another connection: pass one connection of it");
  const { add, look } = addition(writing, options);
  await run("BEGIN", []);
  try {
    const { changed } = await run(add.text, add.values);
    checkOneRow(changed);
    const row = changed === 0 ? undefined : ((await run(look.text, look.values)).rows[0] as Row);
    const accepted: unknown = row === undefined ? false : await accept(row);
    checkAnswer(accepted);
    const { command } = await run(accepted ? "COMMIT" : "ROLLBACK", []);
    if (row === undefined) return { kind: "missing" };
    if (!accepted) return { kind: "left", row };
    // PostgreSQL answers so to the COMMIT of a transaction in which something failed, and calls it no error.
    if (command === "ROLLBACK")
      throw new MisuseError("a statement in the callback failed and its error was caught there: nothing was written");
    return { kind: "written", row };
  } catch (error) {
    // What failed is what the caller must hear of. If the connection is gone, the server rolls back by itself.
    await run("ROLLBACK", []).catch(() => {});
    throw error;
  }
}
