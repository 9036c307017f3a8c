import { shown } from "../../core/checks.js";
import type { Engine } from "../../core/engine.js";
import { InvalidOptionError } from "../../core/errors.js";
import { Listeners } from "../../engine-kit/listeners.js";
import type { Maintained } from "../../sql/engine.js";
import { openLockTable } from "../../sql/open.js";
import { MysqlDatabase } from "./database.js";
import type { MariadbPool, MysqlPool, MysqlPromisePool } from "./driver.js";
import { isMariadbPool, mysqlPoolOf } from "./drivers/mariadb.js";
import { Mysql2Driver } from "./drivers/mysql2.js";
import { checkOptions, type MysqlOptions } from "./options.js";

export interface MysqlEngine extends Engine {
  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  maintenance(): Promise<Maintained>;
}

/**
 * Locks in a schema of a MariaDB (10.6 or later) or MySQL (8 or later) server. Give a pool of `mysql2` or `mariadb`, which
 * the rest of the program may use too; it stays yours to end.
 */
export async function mysqlEngine(
  pool: MysqlPromisePool | MysqlPool | MariadbPool,
  options: MysqlOptions = {},
): Promise<MysqlEngine> {
  return openEngine(pool, options, null);
}

/** `end` ends a pool that is ours alone; null for what somebody handed in. */
export async function openEngine(
  target: MysqlPromisePool | MysqlPool | MariadbPool,
  options: MysqlOptions,
  end: (() => Promise<void>) | null,
): Promise<MysqlEngine> {
  const settings = checkOptions(options);
  const { clock, callTimeoutMs: limitMs } = settings;
  const pool = poolOf(target);
  const listeners = new Listeners();
  const driver = (unanswered: () => void): Mysql2Driver => new Mysql2Driver({ pool, clock, limitMs, unanswered });
  const database = new MysqlDatabase({ driver, settings, end, tell: (event) => listeners.tell(event) });
  return openLockTable(database, settings, listeners);
}

function poolOf(target: MysqlPromisePool | MysqlPool | MariadbPool): MysqlPool {
  if (typeof target === "object" && target !== null) {
    if (isMariadbPool(target)) return mysqlPoolOf(target);
    if ("pool" in target) return target.pool;
    if (typeof target.getConnection === "function") return target;
  }
  throw new InvalidOptionError("pool", shown(target), "a pool of mysql2, of mysql2/promise or of mariadb");
}
