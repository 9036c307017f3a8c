import { createPool, type Pool } from "mysql2";
import type { MysqlConnection, MysqlPool, MysqlQuery } from "../../src/engines/mysql/client.js";
import { type MysqlEngine, mysqlEngine } from "../../src/engines/mysql/index.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { type MariadbServer, startMariadb } from "../servers/mariadb.js";
import { type Change, momentOf, rewriter, ServedClock } from "./sql.js";

const READS = /TIMESTAMPDIFF\(MICROSECOND, '1970-01-01', UTC_TIMESTAMP\(6\)\)/g;
const VIRTUAL = "@virtual_moment";
const OTHERS =
  /\b(now|sysdate|curdate|curtime|unix_timestamp)\s*\(|\b((utc|current)_(timestamp|time|date)|localtime(stamp)?)\b|@@(session\.)?timestamp/i;

export type VirtualMysql = {
  readonly clock: ServedClock;
  readonly server: MariadbServer;
  readonly setting: Setting;
  /** One more lock table on the same server, whose statements are changed on their way. */
  table(schema: string, change: Change): Table;
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
    pool.on("connection", (connection) => patch(connection as unknown as MysqlConnection, clock, rewritten));
    pools.push(pool);
    return pool;
  };
  const clock = new ServedClock(() => plain.promise().query("SELECT 1"));
  const plain = poolWith((sql) => sql);
  const table = (schema: string, change: Change): Table => {
    const pool = poolWith(change);
    return { schema, pool, engine: () => mysqlEngine(pool as unknown as MysqlPool, { schema }) };
  };
  const { engine } = table("holdfast", (sql) => sql);
  const close = async (): Promise<void> => {
    for (const pool of pools) await pool.promise().end();
    await server.running.stop();
  };
  return { clock, server, setting: { engine, leaseStepMs: 1000, clock }, table, close };
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
