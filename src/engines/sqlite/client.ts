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

/** How SQLite failed, by the primary code of its error; null for errors that are not SQLite's. */
export type Failure =
  /** Another connection is writing, recovering or switching modes: ask again. */
  "busy" | "readonly" | "cannot open" | "full" | "corrupt" | "not a database" | "other" | null;

const BY_NAME: readonly (readonly [string, Failure])[] = [
  ["SQLITE_BUSY", "busy"],
  ["SQLITE_LOCKED", "busy"],
  ["SQLITE_PROTOCOL", "busy"],
  ["SQLITE_READONLY", "readonly"],
  ["SQLITE_PERM", "readonly"],
  ["SQLITE_CANTOPEN", "cannot open"],
  ["SQLITE_FULL", "full"],
  ["SQLITE_CORRUPT", "corrupt"],
  ["SQLITE_NOTADB", "not a database"],
  ["SQLITE_", "other"],
];

const BY_NUMBER: Readonly<Record<number, Failure>> = {
  3: "readonly",
  5: "busy",
  6: "busy",
  8: "readonly",
  11: "corrupt",
  13: "full",
  14: "cannot open",
  15: "busy",
  26: "not a database",
};

/** The libraries disagree on where the code stands: `code` as a name, or `errcode` and `rawCode` as a number. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Error)) return null;
  const { code, errcode, rawCode } = error as { code?: unknown; errcode?: unknown; rawCode?: unknown };
  const number = typeof errcode === "number" ? errcode : rawCode;
  // The lower eight bits are the primary code, the rest says more (SQLITE_BUSY_RECOVERY, SQLITE_READONLY_DBMOVED).
  if (typeof number === "number" && number > 0) return BY_NUMBER[number & 0xff] ?? "other";
  if (typeof code !== "string") return null;
  return BY_NAME.find(([prefix]) => code.startsWith(prefix))?.[1] ?? null;
}
