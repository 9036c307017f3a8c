/** The resource side of the token: refuse what a holder writes after its lock has passed on. Needs nothing else of Holdfast. */

export { InvalidTokenError, StaleTokenError } from "../core/errors.js";
export * from "./column.js";
export * from "./etcd.js";
export { type FencedFileOptions, fencedWriteFile, raiseFile } from "./files.js";
export * from "./http.js";
export { memoryFence } from "./memory.js";
export * from "./redis.js";
export {
  fenceTable,
  type MysqlQueryable,
  mysqlFence,
  type PgQueryable,
  postgresFence,
  type SqlDialect,
  type SqlFenceOptions,
  type SqliteFence,
  type SqliteQueryable,
  sqliteFence,
} from "./sql.js";
export type { Fence, FenceOptions, FenceToken } from "./token.js";
export * from "./zookeeper.js";
