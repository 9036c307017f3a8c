// How a lock table grows: names held, names idle beside them, and what an hour's worth of churn leaves behind.
import { randomUUID } from "node:crypto";
import { openMysql } from "../../dist/engines/mysql/index.js";
import { openPostgres } from "../../dist/engines/postgres/index.js";
import { startMariadb, startPostgres } from "../lib/databases.mjs";
import { median, table } from "../lib/measure.mjs";
import { pause } from "../stores/holdfast.mjs";
import { inChunks, nameOf } from "./names.mjs";

const OWNER = { client: "scale", host: "bench", pid: process.pid };
/** Longer than any of the measurements: heartbeats are sent when they are measured. */
const LEASE_MS = 20 * 60_000;
const HEARTBEATS_PER_CALL = 500;
const CHURN_NAMES = 1000;
/** Autovacuum looks once a minute unless told otherwise. */
const VACUUMED_WITHIN_MS = 150_000;

const claimOf = (name) => ({
  name,
  id: randomUUID(),
  units: 1,
  capacity: 1,
  leaseMs: LEASE_MS,
  wait: true,
  owner: OWNER,
});

const STORES = {
  postgres: {
    start: startPostgres,
    open: openPostgres,
    rows: async (client, sql) => (await client.query(sql)).rows,
    makeIdle: (from, to) =>
      `INSERT INTO holdfast.name SELECT 'scale:idle:' || lpad(n::text, 7, '0'), 0, 0, 0, 0, 0, 0, 'infinity', 0, 'infinity',
        '-infinity', clock_timestamp(), '', NULL FROM generate_series(${from}, ${to}) n`,
    bytes: "SELECT pg_total_relation_size('holdfast.name') + pg_total_relation_size('holdfast.claim') AS bytes",
    churn: `SELECT relname AS table, n_tup_upd AS updates, round(100.0 * n_tup_hot_upd / greatest(1, n_tup_upd), 1) AS "HOT %",
      n_tup_ins + n_tup_del AS "inserts and deletes", n_live_tup AS rows, n_dead_tup AS "dead rows", autovacuum_count AS autovacuums,
      pg_relation_size(relid) / 1024 AS "table KiB", pg_indexes_size(relid) / 1024 AS "indexes KiB"
      FROM pg_stat_user_tables WHERE schemaname = 'holdfast' AND relname IN ('name', 'claim', 'tombstone') ORDER BY relname`,
    async cleaned(rows) {
      const dead = "SELECT sum(n_dead_tup) AS n FROM pg_stat_user_tables WHERE schemaname = 'holdfast'";
      for (let waited = 0; waited < VACUUMED_WITHIN_MS; waited += 1000) {
        if (Number((await rows(dead))[0].n) < 2000) return;
        await pause(1000);
      }
    },
  },
  mysql: {
    start: startMariadb,
    open: openMysql,
    rows: async (client, sql) => (await client.query(sql))[0],
    makeIdle: (from, to) =>
      `INSERT INTO holdfast.name
        (name, capacity, taken, holders, waiters, last_token, soonest_end, front_token, front_end, tombstones_end, touched_at)
        SELECT CONCAT('scale:idle:', LPAD(seq, 7, '0')), 0, 0, 0, 0, 0, 8000000000000000000, 0, 8000000000000000000, 0,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) FROM holdfast.seq_${from}_to_${to}`,
    bytes: `SELECT SUM(file_size) AS bytes FROM information_schema.innodb_sys_tablespaces
      WHERE name IN ('holdfast/name', 'holdfast/claim')`,
    churn: `SELECT s.name AS \`table\`, ROUND(s.file_size / 1024) AS "file KiB", t.table_rows AS "rows, about",
      (SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len') AS "not purged"
      FROM information_schema.innodb_sys_tablespaces s JOIN information_schema.tables t
      ON s.name = CONCAT(t.table_schema, '/', t.table_name) WHERE t.table_schema = 'holdfast' AND t.table_name IN ('name', 'claim', 'message', 'tombstone')
      ORDER BY s.name`,
    async cleaned(rows) {
      const left = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";
      for (let waited = 0; waited < VACUUMED_WITHIN_MS; waited += 1000) {
        if (Number((await rows(left))[0].count) < 1000) return;
        await pause(1000);
      }
    },
  },
};

/** µs for each of `count`. */
async function perName(count, work) {
  const start = performance.now();
  await work();
  return ((performance.now() - start) * 1000) / count;
}

async function heldRow(engine, rows, { bytes }, size, idle, step) {
  const alone = [];
  for (let n = 0; n < 300; n += 1) {
    const claim = claimOf(nameOf("alone", n % 10));
    const start = performance.now();
    await engine.claim(claim);
    await engine.release({ ...claim, tombstone: "never" });
    alone.push((performance.now() - start) * 1000);
  }
  step(`${size} held beside ${idle} idle: taking`);
  const before = Number((await rows(bytes))[0].bytes);
  const claims = Array.from({ length: size }, (_, n) => claimOf(nameOf("held", n)));
  const kinds = new Set();
  const claimUs = await perName(size, () =>
    inChunks(size, async (n) => kinds.add((await engine.claim(claims[n])).kind)),
  );
  const taken = Number((await rows(bytes))[0].bytes);
  step(`${size} held beside ${idle} idle: renewing`);
  const renewUs = await perName(size, async () => {
    for (let at = 0; at < size; at += HEARTBEATS_PER_CALL) {
      const some = claims.slice(at, at + HEARTBEATS_PER_CALL);
      for (const { kind } of await engine.renew(some.map(({ name, id }) => ({ name, id })))) kinds.add(kind);
    }
  });
  step(`${size} held beside ${idle} idle: giving back`);
  const releaseUs = await perName(size, () =>
    inChunks(size, async (n) => kinds.add(await engine.release({ ...claims[n], tombstone: "never" }))),
  );
  const wrong = [...kinds].filter((kind) => kind !== "granted" && kind !== "released");
  return { size, idle, pairUs: median(alone), claimUs, renewUs, releaseUs, bytes: (taken - before) / size, wrong };
}

/** Pairs on free names, and a queue of four clients' worth of tasks on one. */
async function churn(engine, pairs, step) {
  const count = { done: 0 };
  const begun = performance.now();
  const pair = async (name) => {
    const claim = claimOf(name);
    await engine.claim(claim);
    await engine.release({ ...claim, tombstone: "never" });
    count.done += 1;
    if (count.done % 50_000 === 0) step(`churn: ${count.done} of ${pairs}`);
  };
  const task = async (_, at) => {
    // One of eight works on a queue: each claim waits for the one before it, or withdraws.
    while (count.done < pairs)
      await pair(at % 8 === 0 ? "scale:hot" : nameOf("churn", Math.floor(Math.random() * CHURN_NAMES)));
  };
  await Promise.all(Array.from({ length: 64 }, task));
  return { pairs: count.done, seconds: (performance.now() - begun) / 1000 };
}

/** @returns whether everything was held and released as it should be */
export async function scaleSql(kind, { heldSizes, idleSizes, pairs, step }) {
  const store = STORES[kind];
  const server = await store.start();
  const client = await server.open();
  const rows = (sql) => store.rows(client, sql);
  const engine = await store.open(server.url);
  const idleMost = Math.max(...idleSizes);
  step("warming up");
  await churn(engine, 3000, () => {});
  await engine.maintenance();
  const held = [];
  for (const size of heldSizes) {
    held.push(await heldRow(engine, rows, store, size, 0, step));
    await engine.maintenance();
  }
  step(`making ${idleMost} idle names`);
  for (let at = 0; at < idleMost; at += 100_000) await rows(store.makeIdle(at + 1, Math.min(idleMost, at + 100_000)));
  held.push(await heldRow(engine, rows, store, heldSizes.at(-1), idleMost, step));
  step("sweeping");
  const start = performance.now();
  const { rowsRemoved } = await engine.maintenance();
  const sweepUs = ((performance.now() - start) * 1000) / Math.max(1, rowsRemoved);
  step("churn");
  const churned = await churn(engine, pairs, step);
  const right = await rows(store.churn);
  step("until it is cleaned up");
  await store.cleaned(rows);
  const cleaned = await rows(store.churn);
  print(kind, { held, sweepUs, rowsRemoved, churned, right, cleaned });
  await engine[Symbol.asyncDispose]();
  await client.end();
  await server.stop();
  return held.every(({ wrong }) => wrong.length === 0);
}

function print(kind, { held, sweepUs, rowsRemoved, churned, right, cleaned }) {
  const whole = (value) => Math.round(value).toLocaleString("en");
  table(
    `${kind}: µs for each name, 500 at a time (a pair by itself: one after the other); bytes of its row with the indexes`,
    ["held", "idle beside", "pair by itself", "claim", "renew", "release", "bytes", "wrong answers"],
    held.map((row) => [
      ...[row.size, row.idle, row.pairUs, row.claimUs, row.renewUs, row.releaseUs, row.bytes].map(whole),
      row.wrong.length,
    ]),
  );
  console.log(`\nA sweep of everything removed ${whole(rowsRemoved)} rows, ${sweepUs.toFixed(1)} µs each.`);
  const title = `${whole(churned.pairs)} pairs in ${churned.seconds.toFixed(0)} s, ${CHURN_NAMES} names and one queue`;
  for (const [when, list] of [
    ["right after", right],
    ["when the server had cleaned up", cleaned],
  ]) {
    const head = Object.keys(list[0] ?? {});
    table(
      `${kind}: ${title}, ${when}`,
      head,
      list.map((row) => head.map((key) => String(row[key] ?? "-"))),
    );
  }
}
