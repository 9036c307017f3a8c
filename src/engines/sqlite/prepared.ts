import type { SqliteDatabase, SqliteStatement, SqliteValue } from "./client.js";
import { ROWS, type Scripts, SQL } from "./scripts.generated.js";

export type Prepared<Key extends keyof Scripts> = {
  run(...values: Scripts[Key]["in"]): void;
  get(...values: Scripts[Key]["in"]): Scripts[Key]["out"] | undefined;
  all(...values: Scripts[Key]["in"]): Scripts[Key]["out"][];
};

export type Statements = { readonly [Key in keyof Scripts]: Prepared<Key> };

/** Every script, prepared once per connection; arguments and rows have the types that its header says. */
export function prepare(database: SqliteDatabase): Statements {
  const made = Object.entries(SQL).map(([key, sql]) => {
    const statement = database.prepare(sql);
    const rowOf = ROWS[key as keyof Scripts];
    return [key, rowOf !== null && statement.raw ? fromArrays(statement, rowOf) : plain(statement)] as const;
  });
  return Object.fromEntries(made) as unknown as Statements;
}

type Loose = {
  run(...values: SqliteValue[]): void;
  get(...values: SqliteValue[]): unknown;
  all(...values: SqliteValue[]): unknown[];
};

function plain(statement: SqliteStatement): Loose {
  return {
    run: (...values) => void statement.run(...values),
    // `null` is what some wrappers answer for "no row".
    get: (...values) => statement.get(...values) ?? undefined,
    all: (...values) => statement.all(...values),
  };
}

/** libsql takes twice as long to build an object as to hand an array over, and the names of the columns are known here. */
function fromArrays(statement: SqliteStatement, rowOf: (columns: readonly unknown[]) => unknown): Loose {
  statement.raw?.(true);
  return {
    run: (...values) => void statement.run(...values),
    get: (...values) => {
      const columns = statement.get(...values) as readonly unknown[] | null | undefined;
      return columns ? rowOf(columns) : undefined;
    },
    all: (...values) => (statement.all(...values) as (readonly unknown[])[]).map(rowOf),
  };
}
