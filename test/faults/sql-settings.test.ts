import type { PoolConnection } from "mysql2/promise";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { claimOf, listening, states } from "./rig.js";

/** What a server, a role or a pool may be set to, and what must not change anything for us. */

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

/** Every verb once, with what it must answer. */
async function exercise(engine: Engine, name: string): Promise<void> {
  const events = listening(engine);
  const [a, b, c] = [claimOf(name, { data: "é'\\\"" }), claimOf(name), claimOf(name)];
  for (let turn = 0; turn < 5; turn += 1) {
    const alone = claimOf(`${name} alone`);
    expect(await engine.claim(alone)).toMatchObject({ kind: "granted" });
    expect(await engine.release({ ...alone, tombstone: "never" })).toBe("released");
  }
  expect(await engine.claim(a)).toMatchObject({ kind: "granted" });
  expect(await engine.claim(b)).toMatchObject({ kind: "queued" });
  expect(await engine.claim(c)).toMatchObject({ kind: "queued" });
  const [state] = await states(engine, { name });
  expect(state).toMatchObject({ name, holders: [{ id: a.id, data: a.data }], waiters: [{ id: b.id }, { id: c.id }] });
  const renewed = await engine.renew([a, b, { name, id: "unknown-".padEnd(22, "x") }]);
  expect(renewed).toMatchObject([{ kind: "granted" }, { kind: "queued" }, { kind: "gone" }]);
  expect(await engine.release(c)).toBe("released");
  expect(await engine.renew([c])).toEqual([{ kind: "gone", revoked: true }]);
  expect(await engine.release(a)).toBe("released");
  if (engine.guarantees.wake === "push") {
    await until("the waiter is told", () => events.some((event) => event.kind === "granted" && event.id === b.id));
  }
  expect(await engine.renew([b])).toMatchObject([{ kind: "granted" }]);
  expect(await engine.resize(b, 1)).toBe("resized");
  expect(await engine.setCapacity(name, 1, 2)).toEqual({ kind: "set" });
  expect(await engine.release(b)).toBe("released");
  const shared = [1, 2, 3].map(() => claimOf(`${name} shared`, { capacity: 3, exact: true }));
  const live: number[] = [];
  for (const claim of shared) {
    const answer = await engine.claim(claim);
    if (answer.kind !== "granted") throw new Error(`a permit was ${answer.kind}`);
    live.push(answer.token);
    expect(answer.live).toEqual(live);
  }
  for (const claim of shared) expect(await engine.release({ ...claim, tombstone: "never" })).toBe("released");
  // Together in one call: known and unknown names, one that is busy, and a run of releases.
  const known = [1, 2, 3].map((n) => claimOf(`${name} together ${n % 2}`, { data: "é'\\\"" }));
  for (let turn = 0; turn < 2; turn += 1) {
    const answers = await Promise.all(known.map((claim) => engine.claim(claim)));
    expect(answers.map(({ kind }) => kind)).toEqual(["granted", "granted", "queued"]);
    const released = known.map((claim) => engine.release({ ...claim, tombstone: turn === 0 ? "never" : "always" }));
    expect(await Promise.all(released)).toEqual(["released", "released", "released"]);
  }
  const locks = await connect(engine);
  const counter = locks.counter(name);
  for (let turn = 1; turn <= 10; turn += 1) {
    expect(await counter.add(1)).toBe(turn);
    expect(await counter.get()).toBe(turn);
  }
  await (engine as Engine & { maintenance(): Promise<unknown> }).maintenance();
  expect(events.filter(({ kind }) => kind === "warning")).toEqual([]);
}

describe("MariaDB", () => {
  let server: maria.MariadbServer;
  beforeAll(async () => {
    server = await maria.startMariadb();
  }, 120_000);
  afterAll(() => server.running.stop());

  const settings = [
    "autocommit = 0",
    "sql_mode = 'ANSI_QUOTES'",
    "sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "sql_mode = 'ORACLE'",
    "sql_mode = 'EMPTY_STRING_IS_NULL,PIPES_AS_CONCAT,PAD_CHAR_TO_FULL_LENGTH'",
    "sql_mode = ''",
    "tx_isolation = 'SERIALIZABLE'",
    "tx_isolation = 'READ-UNCOMMITTED'",
    "tx_read_only = 1",
    "autocommit = 0, tx_read_only = 1, tx_isolation = 'SERIALIZABLE'",
    "time_zone = '+12:45'",
    "character_set_connection = latin1, character_set_results = latin1",
    "character_set_client = latin1, collation_connection = latin1_swedish_ci",
    "sql_safe_updates = 1",
    "sql_select_limit = 0",
    "sql_select_limit = 1",
    "group_concat_max_len = 4",
    "max_statement_time = 1",
    "sql_auto_is_null = 1",
    "div_precision_increment = 0",
    "lc_time_names = 'de_DE'",
    "wait_timeout = 1",
    "completion_type = 1",
    "completion_type = 2",
  ];
  test.each(settings)(
    "with %s everything is answered as without",
    async (setting) => {
      const pool = maria.poolOf(server.url, { connectionLimit: 8 });
      cleanups.push(() => pool.end());
      pool.on("connection", (connection: PoolConnection) => void connection.query(`SET SESSION ${setting}`));
      const schema = `s${settings.indexOf(setting)}`;
      const engine = await mysqlEngine(pool, { schema });
      await exercise(engine, "named é ' \\ \"");
      await engine[Symbol.asyncDispose]();
      const [name = "", value = ""] = setting.split(/ = |, /);
      // The connections that stay in the pool are as they were, and none of them is in a transaction.
      for (let look = 0; look < 3; look += 1) {
        const connection = await pool.getConnection();
        const [rows] = await connection.query(`SELECT @@in_transaction AS busy, @@SESSION.${name} AS value LIMIT 1`);
        expect(rows).toMatchObject([{ busy: 0 }]);
        const now = Number((rows as { value: unknown }[])[0]?.value);
        if (/^\d+$/.test(value) && !Number.isNaN(now)) expect(now).toBe(Number(value));
        connection.release();
      }
    },
    60_000,
  );

  test("where autocommit is off for the whole server, connect() works, and hands over by push", async () => {
    await maria.query(server.url, "SET GLOBAL autocommit = 0");
    cleanups.push(() => maria.query(server.url, "SET GLOBAL autocommit = 1"));
    const [one, two] = [await connect(`${server.url}?schema=global`), await connect(`${server.url}?schema=global`)];
    cleanups.push(() => Promise.all([one.close(), two.close()]));
    for (let turn = 1; turn <= 30; turn += 1) {
      const hold = await one.mutex("global").acquire();
      const next = two.mutex("global").acquire();
      await until("it waits", async () => (await states(one, { name: "global" }))[0]?.waiters.length === 1);
      await hold.release();
      await (await next).release();
      expect(await one.counter("global").add(1)).toBe(turn);
      expect(await two.counter("global").get()).toBe(turn);
    }
    // What listens is in the middle of its query, which ends.
    const open = "SELECT COUNT(*) AS n FROM information_schema.innodb_trx WHERE trx_query IS NULL";
    await until("no transaction stays open", async () => Number((await maria.query(server.url, open))[0]?.n) === 0);
  }, 60_000);

  test("a connection that somebody returned to the pool in the middle of a transaction: what is granted is committed", async () => {
    const pool = maria.poolOf(server.url, { connectionLimit: 4 });
    cleanups.push(() => pool.end());
    const engine = await mysqlEngine(pool, { schema: "forgotten", wake: "poll" });
    const claim = claimOf("forgotten");
    await engine.claim({ ...claim, id: "before-".padEnd(22, "x") });
    await engine.release({ name: claim.name, id: "before-".padEnd(22, "x"), tombstone: "never" });
    const connection = await pool.getConnection();
    await connection.query("START TRANSACTION");
    connection.release();
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    const seen = await maria.query(server.url, "SELECT holders FROM forgotten.name WHERE name = 'forgotten'");
    expect(seen).toEqual([{ holders: 1 }]);
    await engine[Symbol.asyncDispose]();
  });

  test("a connection returned to the pool in the middle of an XA transaction leaves the pool, and the next call is answered", async () => {
    const pool = maria.poolOf(server.url, { connectionLimit: 1 });
    cleanups.push(() => pool.end());
    const engine = await mysqlEngine(pool, { schema: "xa", wake: "poll" });
    // The first by the procedure, the second by the plain statement.
    for (const id of ["first", "second"].map((turn) => turn.padEnd(22, "x"))) {
      const connection = await pool.getConnection();
      await connection.query("XA START 'theirs'");
      connection.release();
      await expect(engine.claim({ ...claimOf("xa"), id })).rejects.toThrow(/XAER_RMFAIL/);
      expect(await engine.claim({ ...claimOf("xa"), id })).toMatchObject({ kind: "granted" });
      expect(await engine.release({ name: "xa", id, tombstone: "never" })).toBe("released");
    }
    await engine[Symbol.asyncDispose]();
  });

  test("a connection returned to the pool while its START TRANSACTION is under way: what is granted is committed", async () => {
    const pool = maria.poolOf(server.url, { connectionLimit: 1 });
    cleanups.push(() => pool.end());
    const engine = await mysqlEngine(pool, { schema: "begun", wake: "poll" });
    const claim = claimOf("begun");
    for (let turn = 0; turn < 3; turn += 1) {
      const connection = await pool.getConnection();
      const begun = connection.query("START TRANSACTION");
      connection.release();
      // The first by the procedure, the others by the plain statement.
      expect(await engine.claim({ ...claim, id: `turn-${turn}`.padEnd(22, "x") })).toMatchObject({ kind: "granted" });
      await begun;
      expect(await maria.query(server.url, "SELECT holders FROM begun.name")).toEqual([{ holders: 1 }]);
      await engine.release({ name: claim.name, id: `turn-${turn}`.padEnd(22, "x"), tombstone: "never" });
    }
    await engine[Symbol.asyncDispose]();
  });
});

describe("PostgreSQL", () => {
  let server: postgres.PostgresServer;
  beforeAll(async () => {
    server = await postgres.startPostgres();
  }, 120_000);
  afterAll(() => server.running.stop());

  const settings = [
    "array_nulls=off",
    "default_transaction_isolation=serializable",
    "default_transaction_isolation=repeatable\\ read",
    "default_transaction_deferrable=on",
    "bytea_output=escape",
    "DateStyle=SQL,DMY",
    "IntervalStyle=sql_standard",
    "TimeZone=Asia/Kathmandu",
    "search_path=nowhere",
    "standard_conforming_strings=off",
    "statement_timeout=2000",
    "idle_in_transaction_session_timeout=1",
    "lock_timeout=500",
    "row_security=off",
    "client_encoding=latin1",
    "extra_float_digits=-15",
    "transform_null_equals=on",
    "quote_all_identifiers=on",
    "plan_cache_mode=force_generic_plan",
    "check_function_bodies=off",
    "synchronous_commit=off",
    "escape_string_warning=on",
    "default_table_access_method=heap",
  ];
  test.each(settings)(
    "with %s everything is answered as without",
    async (setting) => {
      const pool = postgres.poolOf(server.url, { max: 4, options: `-c ${setting}` });
      cleanups.push(() => pool.end());
      const engine = await postgresEngine(pool, { schema: `s${settings.indexOf(setting)}` });
      await exercise(engine, "named é ' \\ \"");
      await engine[Symbol.asyncDispose]();
      const open = "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
      expect(await postgres.query(server.url, open)).toEqual([]);
    },
    60_000,
  );

  test("where transactions only read unless told otherwise, it is refused, and the setting is named", async () => {
    const pool = postgres.poolOf(server.url, { options: "-c default_transaction_read_only=on" });
    cleanups.push(() => pool.end());
    await expect(postgresEngine(pool, { schema: "reads" })).rejects.toThrow(/default_transaction_read_only/);
  });

  test("a connection that somebody returned to the pool in the middle of a transaction: what is granted is committed", async () => {
    const pool = postgres.poolOf(server.url, { max: 2 });
    cleanups.push(() => pool.end());
    const engine = await postgresEngine(pool, { schema: "forgotten", wake: "poll" });
    const client = await pool.connect();
    await client.query("BEGIN");
    client.release();
    const claim = claimOf("forgotten");
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    expect(await postgres.query(server.url, "SELECT holders FROM forgotten.name")).toEqual([{ holders: 1 }]);
    await engine[Symbol.asyncDispose]();
  });

  test("a connection returned to the pool while its BEGIN is under way: nothing is granted that is not committed", async () => {
    const pool = postgres.poolOf(server.url, { max: 1 });
    cleanups.push(() => pool.end());
    const engine = await postgresEngine(pool, { schema: "begun", wake: "poll" });
    const client = await pool.connect();
    const begun = client.query("BEGIN");
    client.release();
    const claim = claimOf("begun");
    await expect(engine.claim(claim)).rejects.toThrow(/in the middle of a transaction/);
    await begun;
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    expect(await postgres.query(server.url, "SELECT holders FROM begun.name")).toEqual([{ holders: 1 }]);
    await engine[Symbol.asyncDispose]();
  });

  test("a connection returned to the pool while its COMMIT is under way: it is committed, and used", async () => {
    const pool = postgres.poolOf(server.url, { max: 1 });
    cleanups.push(() => pool.end());
    const engine = await postgresEngine(pool, { schema: "ending", wake: "poll" });
    const client = await pool.connect();
    await client.query("BEGIN");
    await client.query("CREATE TABLE ending.theirs (id int)");
    const ended = client.query("COMMIT");
    client.release();
    expect(await engine.claim(claimOf("ending"))).toMatchObject({ kind: "granted" });
    await ended;
    expect(await postgres.query(server.url, "SELECT count(*)::int AS n FROM ending.theirs")).toEqual([{ n: 0 }]);
    expect(await pool.connect().then((same) => (same.release(), same === client))).toBe(true);
    await engine[Symbol.asyncDispose]();
  });
});
