import { shown } from "../../core/checks.js";
import type { Engine } from "../../core/engine.js";
import { InvalidOptionError, UnsupportedError } from "../../core/errors.js";
import { Listeners } from "../../engine-kit/listeners.js";
import type { Maintained } from "../../sql/engine.js";
import { openLockTable } from "../../sql/open.js";
import { PostgresDatabase } from "./database.js";
import { type Driver, isPool, type PgClient, type PgPool } from "./driver.js";
import { PgClientDriver } from "./drivers/pg-client.js";
import { PgPoolDriver } from "./drivers/pg-pool.js";
import { checkOptions, type PostgresOptions } from "./options.js";

const POOL_OF_ONE =
  "the pool has one connection, and heartbeats wait behind a claim that waits there for a row which somebody else has locked: " +
  "give it 2 at least (max: 2)";

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
  checkTarget(target);
  const settings = checkOptions(options);
  const { clock, callTimeoutMs: limitMs } = settings;
  const listeners = new Listeners();
  const driver = (unanswered: () => void): Driver =>
    isPool(target)
      ? new PgPoolDriver({ pool: target, clock, limitMs, keeps: end !== null, unanswered })
      : new PgClientDriver(target, clock, limitMs, unanswered);
  if (isPool(target) && target.options.max === 1) listeners.tell({ kind: "warning", message: POOL_OF_ONE });
  const database = new PostgresDatabase({ driver, settings, end, tell: (event) => listeners.tell(event) });
  return openLockTable(database, settings, listeners);
}

/** Says what to do with what is no pool and no client of `pg`. */
function checkTarget(target: object | null): void {
  if (typeof target === "function" && "listen" in target) {
    const missing = "postgres.js cannot give up a connection that does not answer, nor ask the one that listens";
    const advice = 'Give a Pool of pg beside it, or use connect("postgres://…"); docs/engines/postgres.md says why.';
    throw new UnsupportedError("postgres", missing, advice);
  }
  if (typeof target === "function") {
    const missing = "a query over HTTP, such as neon() makes, has no connection that could listen";
    throw new UnsupportedError("postgres", missing, "Give a Pool of the same library, over WebSockets.");
  }
  if (!("connect" in Object(target))) {
    throw new InvalidOptionError("target", shown(target), "a Pool of pg or of a library with its API, or a Client");
  }
}
