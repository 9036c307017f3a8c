export type { Maintained } from "../../sql/engine.js";
export type { ForUpdateOptions, OptimisticAnswer, OptimisticOptions, RowKey } from "../../sql/rows.js";
export type { PgClient, PgPool, PgPoolClient, PgQuery, PgResult } from "./driver.js";
export { type PostgresEngine, postgresEngine } from "./engine.js";
export { migrationSql } from "./migrate.js";
export { openPostgres } from "./open.js";
export type { PostgresOptions } from "./options.js";
export { forUpdate, optimistic, type PgQueryable } from "./rows.js";
