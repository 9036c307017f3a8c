/**
 * The calls this engine makes. `node:sqlite`, `libsql` and `better-sqlite3` all fit as they are; so does a wrapper around
 * one of them. Every call is synchronous: a step of this engine never waits in the middle of a transaction.
 */
export interface SqliteDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
  close(): unknown;
}

export interface SqliteStatement {
  run(...values: SqliteValue[]): unknown;
  get(...values: SqliteValue[]): unknown;
  all(...values: SqliteValue[]): unknown[];
  /** Where it exists: rows as arrays. */
  raw?(arrays: boolean): unknown;
}

export type SqliteValue = string | number | null;
