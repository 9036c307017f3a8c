import { checkLockTable, type LockTableOptions } from "../../sql/options.js";

export type MysqlOptions = LockTableOptions;

/** `MysqlOptions` after the check, with the defaults in place. */
export type Settings = Required<MysqlOptions>;

export function checkOptions(options: MysqlOptions): Settings {
  return checkLockTable(options);
}
