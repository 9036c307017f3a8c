import type { Engine } from "../../core/engine.js";
import { LockTableEngine, type Maintained } from "../../sql/engine.js";
import { PoolConnections } from "./adapters/pool.js";
import type { MysqlPool, MysqlPromisePool } from "./client.js";
import { checkOptions, type MysqlOptions } from "./options.js";
import { probe } from "./probe.js";
import { prepareSchema } from "./schema.js";
import { MysqlTable } from "./table.js";

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
  return openEngine(pool, options, async () => {});
}

/** With a pool of our own: `dispose` ends it. */
export async function openEngine(
  pool: MysqlPromisePool | MysqlPool,
  options: MysqlOptions,
  dispose: () => Promise<void>,
): Promise<MysqlEngine> {
  const settings = checkOptions(options);
  const { clock, callTimeoutMs, schema, migrate } = settings;
  const own = "pool" in pool ? pool.pool : pool;
  const watched: { table?: MysqlTable } = {};
  const silent = (): void => watched.table?.silent();
  const connections = new PoolConnections({ pool: own, clock, limitMs: callTimeoutMs, silent });
  try {
    const server = await probe(connections);
    await prepareSchema(connections, schema, migrate);
    const table = new MysqlTable({ connections, settings, server, dispose, tell: (event) => engine.tell(event) });
    watched.table = table;
    const engine = new LockTableEngine(table, clock);
    await table.open();
    return engine;
  } catch (error) {
    if (watched.table !== undefined) await watched.table.close();
    else {
      connections.close();
      await dispose();
    }
    throw error;
  }
}
