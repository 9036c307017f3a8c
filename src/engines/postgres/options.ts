import type { CredentialsFunction } from "../../engine-kit/credentials.js";
import { checkBoolean, checkLockTable, type LockTableOptions } from "../../sql/options.js";

export interface PostgresOptions extends LockTableOptions {
  /** `false`: a commit does not wait for the disk. Faster; a crash of the server may forget the last grants. */
  readonly durable?: boolean;
}

/** How an engine is opened by URL. */
export interface PostgresUrlOptions extends PostgresOptions {
  /** Who to connect as, asked at each new connection. */
  readonly credentials?: CredentialsFunction;
}

/** `PostgresOptions` after the check, with the defaults in place. */
export type Settings = Required<PostgresOptions>;

export function checkOptions(options: PostgresOptions): Settings {
  const settings = checkLockTable(options, ["durable"]);
  const { durable = true } = options;
  checkBoolean("durable", durable);
  return { ...settings, durable };
}
