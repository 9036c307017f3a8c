import type { Engine } from "../../core/engine.js";
import { Listeners } from "../../engine-kit/listeners.js";
import type { Maintained } from "../../sql/engine.js";
import { openLockTable } from "../../sql/open.js";
import { PostgresDatabase } from "./database.js";
import { type Driver, isPool, type PgClient, type PgPool } from "./driver.js";
import { PgClientDriver } from "./drivers/pg-client.js";
import { PgPoolDriver } from "./drivers/pg-pool.js";
import { checkOptions, type PostgresOptions } from "./options.js";

export interface PostgresEngine extends Engine {
  /** Forget everything that is idle or has ended. Normal use does the same in small batches. */
  maintenance(): Promise<Maintained>;
}

/**
 * Locks in a schema of a PostgreSQL database. Give a `Pool` of `pg`, which the rest of the program may use too, or a
 * connected `Client` that is used for nothing else; they stay yours to end.
 */
export async function postgresEngine(
  target: PgPool | PgClient,
  options: PostgresOptions = {},
): Promise<PostgresEngine> {
  return openEngine(target, options, null);
}

/** `end` ends a pool that is ours alone; null for what somebody handed in. */
export async function openEngine(
  target: PgPool | PgClient,
  options: PostgresOptions,
  end: (() => Promise<void>) | null,
): Promise<PostgresEngine> {
  const settings = checkOptions(options);
  const { clock, callTimeoutMs: limitMs } = settings;
  const listeners = new Listeners();
  const driver = (unanswered: () => void): Driver =>
    isPool(target)
      ? new PgPoolDriver({ pool: target, clock, limitMs, keeps: end !== null, unanswered })
      : new PgClientDriver(target, clock, limitMs, unanswered);
  const database = new PostgresDatabase({ driver, settings, end, tell: (event) => listeners.tell(event) });
  return openLockTable(database, settings, listeners);
}
