import type { Engine } from "../../core/engine.js";
import { LockTableEngine, type Maintained } from "../../sql/engine.js";
import { ClientConnections } from "./adapters/client.js";
import { PoolConnections } from "./adapters/pool.js";
import { isPool, type PgClient, type PgPool } from "./client.js";
import { checkOptions, type PostgresOptions } from "./options.js";
import { prepareSchema } from "./schema.js";
import { PostgresTable } from "./table.js";

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

/** `dispose` ends a pool that is ours alone; null for what somebody handed in. */
export async function openEngine(
  target: PgPool | PgClient,
  options: PostgresOptions,
  dispose: (() => Promise<void>) | null,
): Promise<PostgresEngine> {
  const settings = checkOptions(options);
  const { clock, callTimeoutMs } = settings;
  const silent = (): void => table.silent();
  const connections = isPool(target)
    ? new PoolConnections({ pool: target, clock, limitMs: callTimeoutMs, keeps: dispose !== null, silent })
    : new ClientConnections(target, clock, callTimeoutMs, silent);
  const table: PostgresTable = new PostgresTable({
    connections,
    settings,
    dispose,
    tell: (event) => engine.tell(event),
  });
  const engine = new LockTableEngine(table, clock);
  try {
    await table.open();
    await prepareSchema(connections, settings.schema, settings.migrate);
  } catch (error) {
    await engine[Symbol.asyncDispose]();
    throw error;
  }
  return engine;
}
