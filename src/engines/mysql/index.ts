export type { Maintained } from "../../sql/engine.js";
export type { AddAnswer, AddOptions } from "../../sql/roll-back.js";
export type { RowKey } from "../../sql/row-statements.js";
export type { ForUpdateOptions, OptimisticAnswer, OptimisticOptions } from "../../sql/rows.js";
export type {
  MariadbConnection,
  MariadbPool,
  MysqlConnection,
  MysqlPool,
  MysqlPromisePool,
  MysqlQuery,
} from "./driver.js";
export { type MysqlEngine, mysqlEngine } from "./engine.js";
export { migrationSql } from "./migrate.js";
export { openMysql } from "./open.js";
export type { MysqlOptions, MysqlUrlOptions } from "./options.js";
export { addOrRollBack, forUpdate, type MysqlQueryable, optimistic } from "./rows.js";
