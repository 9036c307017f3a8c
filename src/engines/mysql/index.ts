export type { Maintained } from "../../sql/engine.js";
export type { ForUpdateOptions, OptimisticAnswer, OptimisticOptions, RowKey } from "../../sql/rows.js";
export type { MysqlConnection, MysqlPool, MysqlPromisePool, MysqlQuery } from "./driver.js";
export { type MysqlEngine, mysqlEngine } from "./engine.js";
export { migrationSql } from "./migrate.js";
export { openMysql } from "./open.js";
export type { MysqlOptions } from "./options.js";
export { forUpdate, type MysqlQueryable, optimistic } from "./rows.js";
