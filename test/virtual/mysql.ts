import { createPool, type Pool } from "mysql2";
import type { Engine } from "../../src/core/engine.js";
import type { MysqlConnection, MysqlPool, MysqlQuery } from "../../src/engines/mysql/driver.js";
import { type MysqlEngine, mysqlEngine } from "../../src/engines/mysql/index.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { type MariadbServer, startMariadb } from "../servers/mariadb.js";
import { type Change, inTurns, momentOf, replaced, rewriter, ServedClock } from "./sql/rewriting.js";
import { bothWays, type ClaimRow, type NameRow, type Stored, storedOf, type Way } from "./sql/ways.js";

const READS = /TIMESTAMPDIFF\(MICROSECOND, '1970-01-01', UTC_TIMESTAMP\(6\)\)/g;
const VIRTUAL = "@virtual_moment";
const OTHERS =
  /\b(now|sysdate|curdate|curtime|unix_timestamp)\s*\(|\b((utc|current)_(timestamp|time|date)|localtime(stamp)?)\b|@@(session\.)?timestamp/i;

export type VirtualMysql = {
  readonly clock: ServedClock;
  readonly server: MariadbServer;
  readonly setting: Setting;
  /** One more lock table on the same server, whose statements are changed on their way; without batches unless told. */
  table(schema: string, change: Change, batches?: boolean): Table;
  /** An engine that is two, the fast ways and the plain ones, and compares them. */
  ways(): () => Promise<Engine>;
  close(): Promise<void>;
};

export type Table = {
  readonly schema: string;
  readonly pool: Pool;
  readonly engine: () => Promise<MysqlEngine>;
};

/** A server whose lock tables live by the clock that is handed out: each connection is told the time before a statement. */
export async function virtual(): Promise<VirtualMysql> {
  // Nothing has to survive it.
  const server = await startMariadb(["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]);
  const pools: Pool[] = [];
  const poolWith = (change: Change): Pool => {
    const rewritten = rewriter(READS, VIRTUAL, OTHERS, change);
    const pool = createPool({ uri: server.url, connectionLimit: 100 });
    // Before anybody gets it.
    pool.on("connection", (connection) => patch(connection, clock, rewritten));
    pools.push(pool);
    return pool;
  };
  const clock = new ServedClock(() => plain.promise().query("SELECT 1"));
  const plain = poolWith((sql) => sql);
  const table = (schema: string, change: Change, batches = false): Table => {
    const pool = poolWith(change);
    return {
      schema,
      pool,
      engine: async () => inTurns(await mysqlEngine(pool as unknown as MysqlPool, { schema }), batches),
    };
  };
  const { engine } = table("holdfast", (sql) => sql, true);
  const way = (one: Table): Way => ({ engine: one.engine, stored: (name) => storedIn(one, name, clock) });
  const ways = (): (() => Promise<Engine>) =>
    bothWays(way(table("fast", (sql) => sql, true)), way(table("plain", PLAIN)));
  const close = async (): Promise<void> => {
    for (const pool of pools) await pool.promise().end();
    await server.running.stop();
  };
  return { clock, server, setting: { engine, leaseStepMs: 1000, clock }, table, ways, close };
}

type Query = (query: MysqlQuery | string, ...rest: unknown[]) => unknown;

function patch(connection: MysqlConnection, clock: ServedClock, rewritten: Change): void {
  const send = connection.query.bind(connection) as Query;
  let told = -1;
  const query: Query = (query, ...rest) => {
    const moment = momentOf(clock);
    if (moment !== told) {
      told = moment;
      // Sent before the other and answered before it.
      send({ sql: `SET @virtual_moment = ${moment}` }, () => {});
    }
    if (typeof query === "string") return send(rewritten(query), ...rest);
    // In its place: a pool hands over its own kind of object.
    (query as { sql: string }).sql = rewritten(query.sql);
    return send(query, ...rest);
  };
  (connection as { query: unknown }).query = query;
}

/** Without what makes it fast: the plain statements, the claim in its name's row, and all searches that may be left out. */
export const PLAIN = replaced([
  [/^(UPDATE \S+\.name SET (?:capacity = \?|taken = 0)[\s\S]*WHERE) (name = \?)/, "$1 FALSE AND $2"],
  ["IF v_holds AND v_holders = 0 THEN", "IF FALSE THEN"],
  ["IF NOT p_tombstone AND v_capacity = 1 AND ", "IF FALSE AND v_capacity = 1 AND "],
  ["IF NOT p_tombstone THEN\nSELECT n.waiters", "IF FALSE THEN\nSELECT n.waiters"],
  ["IF v_now >= v_soonest_end OR v_now >= v_front_end THEN\n", "IF TRUE THEN\n"],
  ["IF v_now >= v_soonest_end OR v_now >= v_front_end THEN CALL", "IF v_soonest_end IS NOT NULL THEN CALL"],
  ["IF v_due <= v_now THEN", "IF TRUE THEN"],
  ["IF p_now >= v_soonest_end THEN", "IF TRUE THEN"],
  [" AND token >= v_front_token", ""],
  ["p_holders > 1", "p_holders > 0"],
]);

/** What a table keeps of a name. */
async function storedIn({ pool, schema }: Table, name: string, clock: ServedClock): Promise<Stored> {
  const columns = "id, units, token, holds, ends_at AS endsAt, lease_ms, exact, listens, owner, data, since";
  const sole = `SELECT sole_id, taken, sole_token, 1, soonest_end, sole_lease_ms, sole_exact, sole_listens, sole_owner, sole_data,
    touched_at FROM ${schema}.name WHERE name = ? AND sole_id <> ''`;
  const bytes = Buffer.from(name);
  const ask = async (sql: string, values: unknown[]): Promise<Record<string, unknown>[]> =>
    (await pool.promise().query(sql, values))[0] as Record<string, unknown>[];
  const [names, claims, tombstones] = await Promise.all([
    ask(
      `SELECT capacity, taken, holders, waiters, last_token AS lastToken, 0 AS lowToken,
        soonest_end AS soonestEnd, front_token AS frontToken, front_end AS frontEnd, tombstones_end AS tombstonesEnd
        FROM ${schema}.name WHERE name = ?`,
      [bytes],
    ),
    ask(`SELECT ${columns} FROM ${schema}.claim WHERE name = ? UNION ALL ${sole}`, [bytes, bytes]),
    ask(`SELECT id, ends_at AS endsAt FROM ${schema}.tombstone WHERE name = ?`, [bytes]),
  ]);
  const claimRows = claims.map(({ id, units, token, holds, endsAt, ...rest }) => ({
    ...({ units, token, endsAt } as ClaimRow),
    id: String(id),
    holds: holds === 1,
    rest: Object.values(rest).map(String),
  }));
  const tombstoneRows = tombstones.map(({ id, endsAt }) => ({ id: String(id), endsAt: Number(endsAt) }));
  return storedOf(names[0] as NameRow | undefined, claimRows, tombstoneRows, momentOf(clock));
}
