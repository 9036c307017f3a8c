// Beyond the usual files: a change to a row of a program's own, beside the lock table.
import { type AddAnswer, type AddOptions, addition, checkAnswer, checkOneRow } from "../../sql/roll-back.js";
import type { SqliteDatabase, SqliteValue } from "./driver.js";

// Backquotes: a name in double quotes that is no column is taken for text, and no error says so.
const quote = (identifier: string): string => `\`${identifier.replaceAll("`", "``")}\``;
const DIALECT = { quote, place: () => "?" };

/**
 * Change first, then look: in a transaction of its own, add to the columns of a row and give the callback the row as it is now.
 * True commits, together with what the callback did with the same database; false, or an error, rolls all of it back. The
 * callback cannot wait: whatever else this program does with the database would become part of the transaction.
 */
export function addOrRollBack<Row extends object = Record<string, unknown>>(
  database: SqliteDatabase,
  options: AddOptions,
  accept: (row: Row) => boolean,
): AddAnswer<Row> {
  const { add, look } = addition(DIALECT, options);
  database.exec("BEGIN IMMEDIATE");
  try {
    const { changes } = database.prepare(add.text).run(...(add.values as SqliteValue[])) as {
      changes: number | bigint;
    };
    checkOneRow(Number(changes));
    const row =
      Number(changes) === 0 ? undefined : (database.prepare(look.text).get(...(look.values as SqliteValue[])) as Row);
    const said: unknown = row === undefined ? false : accept(row);
    checkAnswer(said);
    database.exec(said ? "COMMIT" : "ROLLBACK");
    if (row === undefined) return { kind: "missing" };
    return { kind: said ? "written" : "left", row };
  } catch (error) {
    rollBack(database);
    throw error;
  }
}

/** What failed is what the caller must hear of; there may be nothing to roll back any more. */
function rollBack(database: SqliteDatabase): void {
  try {
    database.exec("ROLLBACK");
  } catch {
    // SQLite has done it already.
  }
}
