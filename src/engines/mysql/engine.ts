import type { Engine } from "../../core/engine.js";
import { Listeners } from "../../engine-kit/listeners.js";
import type { Maintained } from "../../sql/engine.js";
import { openLockTable } from "../../sql/open.js";
import { MysqlDatabase } from "./database.js";
import type { MysqlPool, MysqlPromisePool } from "./driver.js";
import { Mysql2Driver } from "./drivers/mysql2.js";
import { checkOptions, type MysqlOptions } from "./options.js";

export interface MysqlEngine extends Engine {
  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  maintenance(): Promise<Maintained>;
}

/**
 * Locks in a schema of a MariaDB (10.6 or later) or MySQL (8 or later) server. Give a pool of `mysql2`, which the rest of the
 * program may use too; it stays yours to end.
 */
export async function mysqlEngine(
  pool: MysqlPromisePool | MysqlPool,
  options: MysqlOptions = {},
): Promise<MysqlEngine> {
  return openEngine(pool, options, null);
}

/** `end` ends a pool that is ours alone; null for what somebody handed in. */
export async function openEngine(
  target: MysqlPromisePool | MysqlPool,
  options: MysqlOptions,
  end: (() => Promise<void>) | null,
): Promise<MysqlEngine> {
  const settings = checkOptions(options);
  const { clock, callTimeoutMs: limitMs } = settings;
  const pool = "pool" in target ? target.pool : target;
  const listeners = new Listeners();
  const driver = (unanswered: () => void): Mysql2Driver => new Mysql2Driver({ pool, clock, limitMs, unanswered });
  const database = new MysqlDatabase({ driver, settings, end, tell: (event) => listeners.tell(event) });
  return openLockTable(database, settings, listeners);
}
