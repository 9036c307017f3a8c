export type { SqliteDatabase, SqliteStatement, SqliteValue } from "./driver.js";
export { type Maintained, type SqliteEngine, sqliteEngine } from "./engine.js";
export type { Machine } from "./machine.js";
export { openSqlite } from "./open.js";
export type { SqliteOptions } from "./options.js";
