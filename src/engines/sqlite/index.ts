export type { AddAnswer, AddOptions } from "../../sql/roll-back.js";
export type { RowKey } from "../../sql/row-statements.js";
export type { SqliteDatabase, SqliteStatement, SqliteValue } from "./driver.js";
export { type Maintained, type SqliteEngine, sqliteEngine } from "./engine.js";
export type { Machine } from "./machine.js";
export { openSqlite } from "./open.js";
export type { SqliteOptions } from "./options.js";
export { addOrRollBack } from "./roll-back.js";
