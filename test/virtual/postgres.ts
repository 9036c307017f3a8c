import { Client, Pool, type PoolConfig } from "pg";
import { type PostgresEngine, postgresEngine } from "../../src/engines/postgres/index.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { type PostgresServer, startPostgres } from "../servers/postgres.js";
import { type Change, momentOf, rewriter, ServedClock } from "./sql.js";

const READS = /\b(clock_timestamp|statement_timestamp|now)\(\)/g;
const VIRTUAL = "current_setting('virtual.moment')::timestamptz";
const OTHERS =
  /\b((clock|statement|transaction)_timestamp|now|timeofday)\s*\(|\b(current_(timestamp|time|date)|localtime(stamp)?)\b|'(now|today|tomorrow|yesterday)'/i;

export type VirtualPostgres = {
  readonly clock: ServedClock;
  readonly server: PostgresServer;
  readonly setting: Setting;
  /** One more lock table on the same server, whose statements are changed on their way. */
  table(schema: string, change: Change): Table;
  close(): Promise<void>;
};

export type Table = { readonly schema: string; readonly pool: Pool; readonly engine: () => Promise<PostgresEngine> };

/** A server whose lock tables live by the clock that is handed out: each connection is told the time before a statement. */
export async function virtual(): Promise<VirtualPostgres> {
  // Nothing has to survive it.
  const server = await startPostgres(["-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off"]);
  const pools: Pool[] = [];
  const poolWith = (change: Change): Pool => {
    const rewritten = rewriter(READS, VIRTUAL, OTHERS, change);
    const options = { connectionString: server.url, max: 8, Client: clientClass(clock, rewritten) };
    const pool = new Pool(options as PoolConfig);
    pool.on("error", () => {});
    pools.push(pool);
    return pool;
  };
  const clock = new ServedClock(() => plain.query("SELECT 1"));
  const plain = poolWith((sql) => sql);
  const table = (schema: string, change: Change): Table => {
    const pool = poolWith(change);
    return { schema, pool, engine: () => postgresEngine(pool, { schema }) };
  };
  const { engine } = table("holdfast", (sql) => sql);
  const close = async (): Promise<void> => {
    for (const pool of pools) await pool.end();
    await server.running.stop();
  };
  return { clock, server, setting: { engine, leaseStepMs: 1000, clock }, table, close };
}

type AnyQuery = (query: unknown, ...rest: unknown[]) => unknown;

function clientClass(clock: ServedClock, rewritten: Change): typeof Client {
  return class extends Client {
    #told = -1;

    // The many signatures of `query` cannot be said again here.
    override query = ((query: unknown, ...rest: unknown[]): unknown => {
      const send = super.query.bind(this) as AnyQuery;
      if (typeof query === "string") return send(rewritten(query), ...rest);
      const { text, ...others } = query as { text: string; values?: unknown };
      const own = { ...others, text: rewritten(text) };
      const moment = momentOf(clock);
      // The verbs have values; the connection that listens has none and need not know the time.
      const reads = own.values !== undefined || own.text.includes(VIRTUAL);
      if (!reads || moment === this.#told) return send(own, ...rest);
      this.#told = moment;
      return (send(`SET virtual.moment = '${isoOf(moment)}'`) as Promise<unknown>).then(() => send(own, ...rest));
    }) as typeof Client.prototype.query;
  };
}

function isoOf(moment: number): string {
  const micros = String(moment % 1000).padStart(3, "0");
  return new Date(Math.floor(moment / 1000)).toISOString().replace("Z", `${micros}Z`);
}
