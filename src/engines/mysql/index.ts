export type { Maintained } from "../../sql/engine.js";
export type { ForUpdateOptions, OptimisticAnswer, OptimisticOptions, RowKey } from "../../sql/rows.js";
export type { MysqlConnection, MysqlPool, MysqlPromisePool, MysqlQuery } from "./client.js";
export { type MysqlEngine, mysqlEngine } from "./engine.js";
export { openMysql } from "./open.js";
export type { MysqlOptions } from "./options.js";
export { forUpdate, type MysqlQueryable, optimistic } from "./rows.js";
export { migrationSql } from "./schema.js";
