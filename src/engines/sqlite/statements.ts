// Beside the usual files: the scripts of sql/, prepared once for each database.
import type { SqliteDatabase, SqliteStatement, SqliteValue } from "./driver.js";
import { ORDER, ROWS, type Scripts, SQL } from "./scripts.generated.js";

type Prepared<Key extends keyof Scripts> = {
  run(...values: Scripts[Key]["in"]): void;
  get(...values: Scripts[Key]["in"]): Scripts[Key]["out"] | undefined;
  all(...values: Scripts[Key]["in"]): Scripts[Key]["out"][];
};

export type Statements = { readonly [Key in keyof Scripts]: Prepared<Key> };

/** What almost every claim, release and hand-over needs. */
const COMMON: readonly (readonly [keyof Scripts, "run" | "get" | "all"])[] = [
  ["load", "get"],
  ["namePut", "run"],
  ["claimFind", "get"],
  ["claimPut", "run"],
  ["claimExtend", "run"],
  ["claimGrant", "run"],
  ["claimTake", "get"],
  ["waiterFirst", "get"],
  ["claimLast", "get"],
  ["holdersFront", "get"],
];

/**
 * Every script; arguments and rows have the types that its header says. The common ones are prepared now, because doing it
 * in the first transaction would make everybody else wait for it, and the rest on first use.
 */
export function prepare(database: SqliteDatabase): Statements {
  const keys = Object.keys(SQL) as (keyof Scripts)[];
  const made = new Map(keys.map((key) => [key, new Script(database, SQL[key], ORDER[key], ROWS[key])]));
  for (const [key, way] of COMMON) made.get(key)?.prepare(way);
  return Object.fromEntries(made) as unknown as Statements;
}

/**
 * A statement for each way of running it: in libsql 0.5.29 a `get` that follows an `all` on the same statement still has
 * the old arguments, and answers about somebody else's lock.
 */
class Script {
  readonly #database: SqliteDatabase;
  readonly #sql: string;
  readonly #order: readonly number[] | null;
  readonly #rowOf: ((columns: readonly unknown[]) => unknown) | null;
  #run: SqliteStatement | null = null;
  #get: SqliteStatement | null = null;
  #all: SqliteStatement | null = null;
  #arrays = false;

  constructor(
    database: SqliteDatabase,
    sql: string,
    order: readonly number[] | null,
    rowOf: ((columns: readonly unknown[]) => unknown) | null,
  ) {
    this.#database = database;
    this.#sql = sql;
    this.#order = order;
    this.#rowOf = rowOf;
  }

  prepare(way: "run" | "get" | "all"): void {
    if (way === "run") this.#run ??= this.#database.prepare(this.#sql);
    else if (way === "get") this.#get ??= this.#prepareRows();
    else this.#all ??= this.#prepareRows();
  }

  run(...values: SqliteValue[]): void {
    this.#run ??= this.#database.prepare(this.#sql);
    this.#run.run(...this.#inOrder(values));
  }

  get(...values: SqliteValue[]): unknown {
    this.#get ??= this.#prepareRows();
    const row = this.#get.get(...this.#inOrder(values));
    // `null` is what some wrappers answer for "no row".
    return row === undefined || row === null ? undefined : this.#row(row);
  }

  all(...values: SqliteValue[]): unknown[] {
    this.#all ??= this.#prepareRows();
    const rows = this.#all.all(...this.#inOrder(values));
    return this.#arrays ? rows.map((row) => this.#row(row)) : rows;
  }

  #inOrder(values: readonly SqliteValue[]): readonly SqliteValue[] {
    return this.#order === null ? values : this.#order.map((position) => values[position] as SqliteValue);
  }

  /** libsql takes twice as long to build an object as to hand an array over, and the names of the columns are known here. */
  #prepareRows(): SqliteStatement {
    const statement = this.#database.prepare(this.#sql);
    this.#arrays = typeof statement.raw === "function";
    statement.raw?.(true);
    return statement;
  }

  #row(row: unknown): unknown {
    return this.#arrays && this.#rowOf !== null ? this.#rowOf(row as readonly unknown[]) : row;
  }
}
