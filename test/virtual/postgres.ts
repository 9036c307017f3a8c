import { Client, Pool } from "pg";
import type { Engine } from "../../src/core/engine.js";
import { type PostgresEngine, postgresEngine } from "../../src/engines/postgres/index.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { type PostgresServer, startPostgres } from "../servers/postgres.js";
import { type Change, inTurns, momentOf, replaced, rewriter, ServedClock } from "./sql/rewriting.js";
import { bothWays, type ClaimRow, type NameRow, type Stored, storedOf, type Way } from "./sql/ways.js";

const READS = /\b(clock_timestamp|statement_timestamp|now)\(\)/g;
const VIRTUAL = "current_setting('virtual.moment')::timestamptz";
const OTHERS =
  /\b((clock|statement|transaction)_timestamp|now|timeofday)\s*\(|\b(current_(timestamp|time|date)|localtime(stamp)?)\b|'(now|today|tomorrow|yesterday)'/i;

export type VirtualPostgres = {
  readonly clock: ServedClock;
  readonly server: PostgresServer;
  readonly setting: Setting;
  /** One more lock table on the same server, whose statements are changed on their way; without batches unless told. */
  table(schema: string, change: Change, batches?: boolean): Table;
  /** An engine that is two, the fast ways and the plain ones, and compares them. */
  ways(): () => Promise<Engine>;
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
    const pool = new Pool(options);
    pool.on("error", () => {});
    pools.push(pool);
    return pool;
  };
  const clock = new ServedClock(() => plain.query("SELECT 1"));
  const plain = poolWith((sql) => sql);
  const table = (schema: string, change: Change, batches = false): Table => {
    const pool = poolWith(change);
    return { schema, pool, engine: async () => inTurns(await postgresEngine(pool, { schema }), batches) };
  };
  const { engine } = table("holdfast", (sql) => sql, true);
  const way = (one: Table): Way => ({ engine: one.engine, stored: (name) => storedIn(one, name, clock) });
  const ways = (): (() => Promise<Engine>) =>
    bothWays(way(table("fast", (sql) => sql, true)), way(table("plain", PLAIN)));
  const close = async (): Promise<void> => {
    for (const pool of pools) await pool.end();
    await server.running.stop();
  };
  return { clock, server, setting: { engine, leaseStepMs: 1000, clock }, table, ways, close };
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

/** Without what makes it fast: the plain statements, the claim in its name's row, and all searches that may be left out. */
export const PLAIN = replaced([
  [/^WITH plain AS \([\s\S]*UNION ALL (SELECT [\s\S]*) WHERE NOT EXISTS \(SELECT FROM plain\)$/, "$1"],
  ["IF p_units <= p_capacity THEN\nINSERT", "IF false THEN\nINSERT"],
  ["IF p_wait THEN\nv_answer := ", "IF false THEN\nv_answer := "],
  ["IF NOT p_tombstone AND ", "IF false AND "],
  ["IF n.holders = 1 THEN\nn.sole_id", "IF false THEN\nn.sole_id"],
  ["IF p_now < n.soonest_end AND p_now < n.front_end THEN RETURN n; END IF;", ""],
  ["IF FOUND AND (v_now >= n.soonest_end OR v_now >= n.front_end) THEN", "IF FOUND THEN"],
  ["IF v_now >= n.soonest_end OR v_now >= n.front_end THEN", "IF true THEN"],
  ["IF p_now >= n.soonest_end THEN", "IF true THEN"],
  [" AND t.token >= n.front_token", ""],
  [" AND h.token >= n.low_token", ""],
  ["n.holders > 1", "n.holders > 0"],
]);

/** What a table keeps of a name. */
async function storedIn({ pool, schema }: Table, name: string, clock: ServedClock): Promise<Stored> {
  const micros = (column: string): string =>
    `CASE ${column} WHEN 'infinity' THEN 'Infinity' WHEN '-infinity' THEN '-Infinity' ELSE (extract(epoch FROM ${column}) * 1000000)::bigint::text END`;
  const text = `SELECT
    (SELECT json_build_object('capacity', capacity, 'taken', taken, 'holders', holders, 'waiters', waiters,
      'lastToken', last_token, 'lowToken', low_token, 'soonestEnd', ${micros("soonest_end")},
      'frontToken', front_token, 'frontEnd', ${micros("front_end")}, 'tombstonesEnd', ${micros("tombstones_end")})
      FROM ${schema}.name WHERE name = $1) AS name,
    (SELECT json_agg(json_build_object('id', id, 'units', units, 'token', token, 'holds', holds, 'endsAt', ${micros("ends_at")},
      'rest', json_build_array(lease_ms, exact, listens, owner, data, ${micros("since")})))
      FROM (SELECT * FROM ${schema}.claim WHERE name = $1
        UNION ALL SELECT (sole).*, touched_at FROM ${schema}.name WHERE name = $1 AND sole_id <> '') all_claims) AS claims,
    (SELECT json_agg(json_build_object('id', id, 'endsAt', ${micros("ends_at")})) FROM ${schema}.tombstone WHERE name = $1) AS tombstones`;
  const { rows } = await pool.query<Record<"name" | "claims" | "tombstones", unknown>>({
    name: `stored ${schema}`,
    text,
    values: [name],
  });
  const row = rows[0];
  const timed = <T>(value: unknown): T[] =>
    ((value ?? []) as Record<string, unknown>[]).map((one) => numbered(one) as T);
  const [found] = row?.name ? timed<NameRow>([row.name]) : [];
  return storedOf(found, timed<ClaimRow>(row?.claims), timed(row?.tombstones), momentOf(clock));
}

/** Times come as text, for the sake of those that are infinite. */
function numbered(row: Record<string, unknown>): Record<string, unknown> {
  const times = Object.entries(row).filter(([key]) => /End$|^endsAt$/.test(key));
  return { ...row, ...Object.fromEntries(times.map(([key, value]) => [key, Number(value)])) };
}
