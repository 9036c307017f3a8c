import type { CredentialsFunction } from "../../engine-kit/credentials.js";
import { checkLockTable, type LockTableOptions } from "../../sql/options.js";

export type MysqlOptions = LockTableOptions;

/** How an engine is opened by URL. */
export interface MysqlUrlOptions extends MysqlOptions {
  /** Who to connect as, asked at each new connection. */
  readonly credentials?: CredentialsFunction;
}

/** `MysqlOptions` after the check, with the defaults in place. */
export type Settings = Required<MysqlOptions>;

export function checkOptions(options: MysqlOptions): Settings {
  return checkLockTable(options);
}
