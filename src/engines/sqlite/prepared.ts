import type { SqliteDatabase, SqliteValue } from "./client.js";
import { type Scripts, SQL } from "./scripts.generated.js";

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
    const prepared: Prepared<keyof Scripts> = {
      run: (...values: SqliteValue[]) => void statement.run(...values),
      // `null` is what some wrappers answer for "no row".
      get: (...values: SqliteValue[]) => (statement.get(...values) ?? undefined) as never,
      all: (...values: SqliteValue[]) => statement.all(...values) as never[],
    };
    return [key, prepared] as const;
  });
  return Object.fromEntries(made) as unknown as Statements;
}
