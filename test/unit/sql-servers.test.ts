import { describe, expect, test } from "vitest";
import { EngineRefusedError, InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { CallTimeouts } from "../../src/engine-kit/call-timeouts.js";
import { resultSets, textOf } from "../../src/engines/mysql/driver.js";
import { PooledConnection } from "../../src/engines/mysql/drivers/connection.js";
import type { Mysql2Driver } from "../../src/engines/mysql/drivers/mysql2.js";
import { errors as mysqlErrors } from "../../src/engines/mysql/errors.js";
import * as mysql from "../../src/engines/mysql/guarantees.js";
import { MysqlStatements } from "../../src/engines/mysql/statements.js";
import * as mysqlUrl from "../../src/engines/mysql/url.js";
import type { Driver, ListeningConnection, PgClient, PgQuery } from "../../src/engines/postgres/driver.js";
import { StatementQueue } from "../../src/engines/postgres/drivers/statement-queue.js";
import { errors as postgresErrors } from "../../src/engines/postgres/errors.js";
import { Listener } from "../../src/engines/postgres/events.js";
import * as postgres from "../../src/engines/postgres/guarantees.js";
import { PostgresStatements } from "../../src/engines/postgres/statements.js";
import * as postgresUrl from "../../src/engines/postgres/url.js";
import { guaranteesOf } from "../../src/sql/guarantees.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What the engines on PostgreSQL and MySQL make of what servers say, and of servers that say nothing. */

const HOUR_MS = 3_600_000;

describe("what PostgreSQL guarantees follows from what the server says", () => {
  const usual = { recovery: "false", encoding: "UTF8", fsync: "on", commit: "on", standbys: "", senders: "0" };
  const serverOf = (rows: object) => postgres.probe({ run: async () => ({ rows: [rows] }) } as unknown as Driver);

  test.each([
    [{}, { durable: true, failoverForgets: false }],
    [{ fsync: "off" }, { durable: false, failoverForgets: false }],
    [{ commit: "off" }, { durable: false, failoverForgets: false }],
    [{ commit: "local" }, { durable: true, failoverForgets: false }],
    [{ senders: "1" }, { durable: true, failoverForgets: true }],
    [
      { senders: "1", standbys: "*" },
      { durable: true, failoverForgets: false },
    ],
    [
      { senders: "1", standbys: "*", commit: "remote_apply" },
      { durable: true, failoverForgets: false },
    ],
    [
      { senders: "1", standbys: "*", commit: "local" },
      { durable: true, failoverForgets: true },
    ],
    [{ standbys: "*" }, { durable: true, failoverForgets: false }],
  ])("%o", async (says, server) => {
    expect(await serverOf({ ...usual, ...says })).toEqual(server);
  });

  test("who it is: by its identifier, its time up, whether it is a replica and how many it has", async () => {
    const infoOf = (recovery: string) =>
      postgres.serverInfo({
        run: async () => ({ rows: [{ server: "7", up: "61000", recovery, senders: "2" }] }),
      } as unknown as Driver);
    const info = { server: "postgres 7", upMs: 61_000, replica: false, replicas: 2 };
    expect(await infoOf("false")).toEqual(info);
    expect(await infoOf("true")).toEqual({ ...info, replica: true });
  });

  test("a replica, and an encoding that cannot hold every name, are refused", async () => {
    for (const says of [{ recovery: "true" }, { encoding: "LATIN1" }]) {
      await expect(serverOf({ ...usual, ...says })).rejects.toBeInstanceOf(EngineRefusedError);
    }
  });
});

test.each([
  [true, false, "single-server", "monotonic"],
  [true, true, "until-failover", "monotonic-if-clocks"],
  [false, false, "until-failover", "monotonic-if-clocks"],
] as const)("durable %s, a fail-over forgets %s: %s", (durable, failoverForgets, exclusion, token) => {
  const guarantees = guaranteesOf({ durable, failoverForgets }, "poll");
  expect(guarantees).toMatchObject({ exclusion, token, survivesRestart: durable, wake: "poll" });
});

describe("what MySQL guarantees follows from what the server says", () => {
  const usual = { read_only: "OFF", innodb_flush_log_at_trx_commit: "1", log_bin: "OFF", sync_binlog: "0" };

  function serverOf(says: Record<string, string>, version = "10.11.6-MariaDB", replicas: string | null = "0") {
    const run = async (sql: string) => {
      if (sql.includes("VERSION()")) return [[{ version, comment: "x" }]];
      if (sql.includes("autocommit")) return [[{ autocommit: says["autocommit"] ?? "1", one: 1 }]];
      if (sql.includes("STATUS")) return [replicas === null ? [] : [{ name: "Slaves_connected", value: replicas }]];
      return [Object.entries({ ...usual, ...says }).map(([name, value]) => ({ name, value: Buffer.from(value) }))];
    };
    return mysql.probe({ run } as unknown as Mysql2Driver);
  }
  const none = { galera: false, autocommit: true, durable: true, failoverForgets: false };

  test.each([
    [{}, "10.11.6-MariaDB", "0", none],
    [{}, "10.11.6-MariaDB", "1", { ...none, failoverForgets: true }],
    [{}, "10.11.6-MariaDB", null, { ...none, failoverForgets: true }],
    [{ wsrep_on: "ON" }, "10.11.6-MariaDB", "0", { ...none, galera: true, failoverForgets: true }],
    [{ innodb_flush_log_at_trx_commit: "2" }, "10.11.6-MariaDB", "0", { ...none, durable: false }],
    [{ log_bin: "ON" }, "10.11.6-MariaDB", "0", none],
    [{ log_bin: "ON" }, "8.0.36", null, { ...none, durable: false, failoverForgets: true }],
    [{ log_bin: "ON", sync_binlog: "1" }, "8.0.36", null, { ...none, failoverForgets: true }],
    [{}, "8.0.36", null, none],
    [{ autocommit: "0" }, "8.0.36", null, { ...none, autocommit: false }],
  ])("%o of %s with %s replicas", async (says, version, replicas, server) => {
    expect(await serverOf(says as Record<string, string>, version, replicas)).toEqual(server);
  });

  test("servers that only read, and versions that are too old, are refused", async () => {
    for (const says of [{ read_only: "ON" }, { super_read_only: "ON" }]) {
      await expect(serverOf(says)).rejects.toBeInstanceOf(EngineRefusedError);
    }
    for (const version of ["10.5.99-MariaDB", "5.7.44", "", "9.9.9-mariadb"]) {
      await expect(serverOf({}, version), version).rejects.toBeInstanceOf(UnsupportedError);
    }
    for (const version of ["10.6.0-MariaDB", "11.4.2-MariaDB-log", "8.0.0", "9.1.0"]) {
      expect(await serverOf({}, version), version).toMatchObject({ galera: false });
    }
  });

  test("who it is: by its identity, its time up in whole seconds less one, and what it counts", async () => {
    const infoOf = (status: Record<string, string>) =>
      mysql.serverInfo({
        run: async (sql: string) => [
          Object.entries(sql.includes("STATUS") ? status : { server_uuid: "u", port: "3306" }).map(([name, value]) => ({
            name,
            value,
          })),
        ],
      } as unknown as Mysql2Driver);
    expect(await infoOf({ Uptime: "61", Slaves_connected: "2" })).toEqual({
      server: "mysql u   3306 ",
      upMs: 60_000,
      replicas: 2,
      cluster: false,
    });
    for (const size of ["1", "3"]) {
      expect(await infoOf({ Uptime: "0", wsrep_cluster_size: size })).toMatchObject({ upMs: 0, cluster: true });
    }
    expect(await infoOf({ Uptime: "0" })).not.toHaveProperty("replicas");
  });
});

describe("what went wrong is told from what a server refused by its error alone", () => {
  test.each([
    [{ code: "42501", severity: "ERROR" }, true, true],
    [{ code: "57P01", severity: "FATAL" }, true, false],
    [{ code: "XX000", severity: "PANIC" }, true, false],
    // The connection forgot a statement that was prepared on it.
    [{ code: "26000", severity: "ERROR" }, true, false],
    // Of the system, and of the library.
    [{ code: "EPIPE" }, false, false],
    [{ code: "ECONNRESET", severity: "ERROR" }, false, false],
    [{ code: 42_501, severity: "ERROR" }, false, false],
    [{ severity: "ERROR" }, false, false],
  ])("PostgreSQL: %o", (says, isOfServer, isAnswer) => {
    const cause = Object.assign(new Error("x"), says);
    expect(postgresErrors.hasCode(cause, [(says as { code?: string }).code ?? ""])).toBe(isOfServer);
    expect(postgresErrors.isAnswer(cause)).toBe(isAnswer);
  });

  test.each([
    [{ errno: 1142, sqlState: "42000" }, true, true],
    [{ errno: 1142, sqlState: "42000", fatal: false }, true, true],
    [{ errno: 1142, sqlState: "42000", fatal: true }, true, false],
    [{ errno: 1399, sqlState: "XAE07" }, true, false],
    [{ errno: 1317, sqlState: "70100" }, true, false],
    // Of the system: it has a number, and no state.
    [{ errno: -104 }, false, false],
    [{ errno: "1142", sqlState: "42000" }, false, false],
  ])("MySQL: %o", (says, isOfServer, isAnswer) => {
    const cause = Object.assign(new Error("x"), says);
    expect(mysqlErrors.hasCode(cause, [says.errno])).toBe(isOfServer);
    expect(mysqlErrors.isAnswer(cause)).toBe(isAnswer);
  });
});

describe("PostgreSQL's statements", () => {
  const textOf = (durable: boolean, prepared: boolean, verb: "claim" | "resize") =>
    new PostgresStatements({ schema: "s", durable, prepared }).query(verb, { id: "i", name: "n", units: 2 });
  const PLAIN =
    /^WITH plain AS \([^]+\) SELECT answer(.*) FROM plain\s+UNION ALL SELECT "s"\.claim\(.+\) AS answer(.*) WHERE NOT EXISTS \(SELECT FROM plain\)$/;

  test("call a function by its parameters, in their order and with their types", () => {
    expect(textOf(true, false, "resize")).toEqual({
      text: 'SELECT "s".resize($1::text, $2::text, $3::integer) AS answer',
      values: ["n", "i", 2],
    });
  });

  test("of claims begin with a plain one, where they are prepared", () => {
    expect(PLAIN.exec(textOf(true, true, "claim").text)?.slice(1)).toEqual(["", ""]);
    expect(textOf(true, true, "resize").text).not.toContain("WITH");
    expect(textOf(true, false, "claim").text).toMatch(/^SELECT "s"\.claim\(/);
  });

  test("say that a commit need not wait for the disk, whichever part of them decides", () => {
    const asks = ", set_config('synchronous_commit', 'off', true)";
    expect(PLAIN.exec(textOf(false, true, "claim").text)?.slice(1)).toEqual([asks, asks]);
    expect(textOf(false, false, "resize").text.endsWith(` AS answer${asks}`)).toBe(true);
  });

  test("are prepared under a name of their own: a pool may be shared with other schemas and other options", () => {
    const names = [true, false].flatMap((durable) =>
      (["claim", "resize"] as const).map((verb) => textOf(durable, true, verb).name),
    );
    expect(new Set(names).size).toBe(4);
    expect(textOf(true, false, "claim")).not.toHaveProperty("name");
  });
});

describe("a URL", () => {
  test("of MySQL is taken apart for mysql2", () => {
    expect(mysqlUrl.parseUrl("mysql://us%40er:p%3Ass@h:3307/d%2Fb?schema=s")).toEqual({
      server: { host: "h", port: 3307, user: "us@er", password: "p:ss", database: "d/b" },
      account: { username: "us@er", password: "p:ss" },
      own: { schema: "s" },
    });
    expect(mysqlUrl.parseUrl("mysql://[::1]").server).toEqual({ host: "::1", port: 3306, user: "", password: "" });
    expect(mysqlUrl.parseUrl("mysql://h?tls=true").server).toMatchObject({
      ssl: { rejectUnauthorized: true, verifyIdentity: true },
    });
    expect(mysqlUrl.parseUrl("mysql://127.0.0.1?tls=true").server).toMatchObject({ ssl: { verifyIdentity: false } });
    expect(mysqlUrl.parseUrl("mysql:///d").server).toMatchObject({ host: "localhost", database: "d" });
    expect(mysqlUrl.parseUrl("mysql://h?tls=false").server).not.toHaveProperty("ssl");
    for (const wrong of ["mysql://h?other=1", "mysql://h?ca=x", "mysql://h?tls=true&ca=/none", "mysql://h?tls=1"]) {
      expect(() => mysqlUrl.parseUrl(wrong), wrong).toThrow(InvalidOptionError);
    }
  });

  test("of PostgreSQL keeps what is for pg", () => {
    expect(postgresUrl.parseUrl("postgres://u:p@h/d?durable=false&sslmode=require")).toEqual({
      connectionString: "postgres://u:p@h/d?sslmode=require",
      account: { username: "u", password: "p" },
      own: { durable: false },
    });
    expect(postgresUrl.parseUrl("postgres://h/d").own).toEqual({});
    const shared = "postgres://h/d?connection_limit=5&pgbouncer=true&channel_binding=require&sslmode=verify-full";
    expect(postgresUrl.parseUrl(shared).connectionString).toBe(shared);
    expect(postgresUrl.parseUrl("postgres://h/d?user=u&password=p").account).toMatchObject({ password: "p" });
  });

  test.each([
    ...[
      "sslMode=verify-full",
      "ssl_mode=verify-full",
      "ssl-mode=REQUIRED",
      "sslmod=verify-full",
      "tls=true",
      "ca=file",
    ],
    ...["sslmode=", "ssl=", "sslmode=verify-full&sslrootcert=/none", "sslkey=/none", "sslcert=/none"],
  ])("of PostgreSQL is refused with %s, which pg would leave out in silence, or cannot read", (parameter) => {
    expect(() => postgresUrl.parseUrl(`postgres://u:secret@h/d?${parameter}`)).toThrow(InvalidOptionError);
    expect(() => postgresUrl.parseUrl(`postgres://u:secret@h/d?${parameter}`)).not.toThrow(/secret/);
  });
});

describe("MySQL's plain statements", () => {
  const claim = {
    name: "n",
    id: "i",
    units: 1,
    capacity: 1,
    leaseMs: 9,
    waiterMs: 1,
    wait: true,
    owner: "{}",
  } as const;
  const asked = { ...claim, data: null, exact: false, atLeast: 0, reserve: 0, client: "c", listens: true };
  const release = { name: "n", id: "i", tombstone: false, tombstoneMs: 1, to: null, client: "c" };
  const changed = { affectedRows: 1, insertId: 7 };
  const PLAIN = { autocommit: true, galera: false };
  const granted = { kind: "granted", leftMs: 9, token: 7, floor: 7 } as const;

  test("on Galera a procedure begins when its node has caught up", () => {
    const { sql } = new MysqlStatements("s", { ...PLAIN, galera: true }).call("claim", asked);
    expect(sql).toMatch(/^SET STATEMENT wsrep_sync_wait = 15 FOR CALL `s`/);
    expect(new MysqlStatements("s", PLAIN).call("claim", asked).sql).toMatch(/^CALL `s`/);
  });

  test("are used where a statement is a transaction, and only for claims that were alone", () => {
    expect(new MysqlStatements("s", { autocommit: false, galera: false }).plainClaim(asked)).toBeUndefined();
    const statements = new MysqlStatements("s", PLAIN);
    expect(statements.plainClaim({ ...asked, units: 2 })).toBeUndefined();
    expect(statements.plainRelease(release)).toBeUndefined();
    const plain = statements.plainClaim(asked);
    expect(plain?.sql).toContain("`s`.");
    expect(plain?.answer(changed)).toEqual(granted);
    expect(statements.plainClaim({ ...asked, exact: true })?.answer(changed)).toMatchObject({ live: [7] });
    statements.claimed("n", "i", granted);
    expect(statements.plainRelease(release)?.answer(changed)).toBe("released");
    expect(statements.plainRelease(release)).toBeUndefined();
    statements.claimed("n", "i", { ...granted, floor: 6 });
    expect(statements.plainRelease(release)).toBeUndefined();
    statements.claimed("n", "i", granted);
    expect(statements.plainRelease({ ...release, tombstone: true })).toBeUndefined();
    statements.claimed("n", "i", granted);
    expect(statements.plainRelease({ ...release, to: "next" })).toBeUndefined();
    const others = new MysqlStatements("s", { autocommit: false, galera: false });
    others.claimed("n", "i", granted);
    expect(others.plainRelease(release)).toBeUndefined();
  });

  test("what is remembered of ten thousand names is forgotten with the next", () => {
    const statements = new MysqlStatements("s", PLAIN);
    const queued = { kind: "queued", token: 8, nextMs: 1 } as const;
    for (let n = 0; n < 10_000; n += 1) statements.claimed(`n${n}`, "j", queued);
    for (const name of ["n0", "n9999"]) expect(statements.plainClaim({ ...asked, name })).toBeUndefined();
    statements.claimed("last", "j", queued);
    expect(statements.plainClaim({ ...asked, name: "last" })).toBeUndefined();
    for (const name of ["n0", "n9999"]) expect(statements.plainClaim({ ...asked, name })).toBeDefined();
  });

  test("are left out for a name where the last claim had to queue", () => {
    const statements = new MysqlStatements("s", PLAIN);
    statements.claimed("n", "i", granted);
    statements.claimed("n", "j", { kind: "queued", token: 8, nextMs: 1 });
    expect(statements.plainClaim(asked)).toBeUndefined();
    expect(statements.plainClaim({ ...asked, name: "other" })).toBeDefined();
    expect(statements.plainRelease(release)).toBeUndefined();
    statements.claimed("n", "k", granted);
    expect(statements.plainClaim(asked)).toBeDefined();
  });

  test("are left out for the release of a name where the last one let somebody in", () => {
    const statements = new MysqlStatements("s", PLAIN);
    statements.released("n", true);
    statements.claimed("n", "i", granted);
    statements.claimed("other", "j", granted);
    expect(statements.plainRelease(release)).toBeUndefined();
    expect(statements.plainRelease({ ...release, name: "other", id: "j" })).toBeDefined();
    expect(statements.plainClaim(asked)).toBeDefined();
    statements.released("n", false);
    statements.claimed("n", "k", granted);
    expect(statements.plainRelease({ ...release, id: "k" })).toBeDefined();
  });

  test("carry text as bytes, and lists as JSON", () => {
    const { values } = new MysqlStatements("s", PLAIN).call("renew", {
      heartbeats: [["n", "i", 1, 0]],
      waiterMaxMs: 5,
    });
    expect(values).toEqual([Buffer.from('[["n","i",1,0]]'), 5]);
    expect(new MysqlStatements("s", PLAIN).call("claim", asked).values).toContainEqual(Buffer.from("n"));
    expect(new MysqlStatements("s", PLAIN).call("claim", asked).values).toContain(1);
    const terms = [[1, 1, 9, 1, true, "{}", null, false, 0, 0]] as const;
    const batch = { requests: [["n", "i", 1, null]], terms, tombstoneMs: 1, client: "c", listens: true } as const;
    // JSON's true is no number to every server.
    expect(new MysqlStatements("s", PLAIN).call("batch", batch).values.slice(0, 2)).toEqual([
      Buffer.from('[["n","i",1,null]]'),
      Buffer.from('[[1,1,9,1,1,"{}",null,0,0,0]]'),
    ]);
  });

  test("answers are result sets of rows, and text whatever it came as", () => {
    expect(resultSets({ affectedRows: 1 })).toEqual([]);
    expect(resultSets([{ a: 1 }])).toEqual([[{ a: 1 }]]);
    expect(resultSets([[{ a: 1 }], [{ b: 1 }], { affectedRows: 0 }])).toEqual([[{ a: 1 }], [{ b: 1 }]]);
    expect([textOf(Buffer.from("é")), textOf("é"), textOf(1)]).toEqual(["é", "é", "1"]);
  });
});

test("a connection of MySQL's that is given up fails what is under way, and only silence is told", async () => {
  const clock = new FakeClock();
  const timeouts = new CallTimeouts(clock, 1000);
  const told: string[] = [];
  let done = (_error: Error | null, _result: unknown): void => {};
  const connection = {
    query: (_: unknown, callback: typeof done) => (done = callback),
    release: () => told.push("released"),
    destroy: () => told.push("destroyed"),
    stream: { destroy: () => told.push("cut") },
  };
  const note = (what: string) => () => void told.push(what);
  const parts = { clock, limitMs: 1000, timeouts, answered: note("answered"), unanswered: note("unanswered") };
  const one = new PooledConnection(connection, parts);
  const fine = one.run("SELECT 1");
  done(null, [{ a: 1 }]);
  expect(await fine).toEqual([[{ a: 1 }]]);
  const failed = expect(one.run("SELECT 2")).rejects.toThrow("no");
  done(new Error("no"), null);
  await failed;
  expect(told).toEqual(["answered"]);
  const silent = expect(one.run("SELECT 3")).rejects.toThrow(/no answer within/);
  await clock.advance(1000);
  await silent;
  expect(told).toEqual(["answered", "unanswered"]);
  const again = expect(one.run("SELECT 4")).rejects.toThrow("no");
  done(new Error("no"), null);
  await again;
  expect(told).toEqual(["answered", "unanswered"]);
  const under = expect(one.run("SELECT 5")).rejects.toThrow("given up");
  clock.stall(1000);
  one.close();
  await under;
  expect(told).toEqual(["answered", "unanswered", "destroyed", "cut"]);
  timeouts.close();
});

describe("one connection of PostgreSQL's", () => {
  test("runs one statement after the other, and none that waited for too long", async () => {
    const clock = new FakeClock();
    const sent: string[] = [];
    const answers: (() => void)[] = [];
    const query = ({ text }: PgQuery) => {
      sent.push(text);
      return new Promise((resolve) => answers.push(() => resolve({ rows: [] })));
    };
    let unanswered = 0;
    const queue = new StatementQueue({ query } as unknown as PgClient, clock, 1000, () => (unanswered += 1));
    const first = queue.run({ text: "one" });
    const second = queue.run({ text: "two" });
    await clock.advance(0);
    expect(sent).toEqual(["one"]);
    answers[0]?.();
    await first;
    await clock.advance(0);
    expect(sent).toEqual(["one", "two"]);
    const third = expect(queue.run({ text: "three" })).rejects.toThrow();
    const late = expect(second).rejects.toThrow(/no answer within/);
    await clock.advance(1500);
    await Promise.all([late, third]);
    expect(unanswered).toBe(2);
    answers[1]?.();
    await clock.advance(0);
    expect(sent).toEqual(["one", "two"]);
    const last = expect(queue.run({ text: "four" })).rejects.toThrow();
    await clock.advance(0);
    clock.stall(1000);
    queue.close();
    await last;
    expect(unanswered).toBe(2);
  });

  test("a statement that the server refused is no silence, and the next one is sent", async () => {
    const clock = new FakeClock();
    await clock.advance(5000);
    const sent: string[] = [];
    const query = async ({ text }: PgQuery) => {
      sent.push(text);
      throw new Error("refused");
    };
    let unanswered = 0;
    const queue = new StatementQueue({ query } as unknown as PgClient, clock, 1000, () => (unanswered += 1));
    const both = [queue.run({ text: "one" }), queue.run({ text: "two" })];
    for (const one of both) await expect(one).rejects.toThrow("refused");
    expect([sent, unanswered]).toEqual([["one", "two"], 0]);
    queue.close();
  });

  test("a statement whose time is over when its turn comes is not sent", async () => {
    const clock = new FakeClock();
    const sent: string[] = [];
    const answers: (() => void)[] = [];
    const query = ({ text }: PgQuery) => {
      sent.push(text);
      return new Promise((resolve) => answers.push(() => resolve({ rows: [] })));
    };
    const queue = new StatementQueue({ query } as unknown as PgClient, clock, 1000);
    const late = [queue.run({ text: "one" }), queue.run({ text: "two" })].map((one) => expect(one).rejects.toThrow());
    await clock.advance(1000);
    await Promise.all(late);
    answers[0]?.();
    await clock.advance(0);
    expect(sent).toEqual(["one"]);
  });

  function listening() {
    const clock = new FakeClock();
    const state = { away: false, answers: true, processId: 7 as number | null, made: 0, closed: 0 };
    const sent: string[] = [];
    const told: string[] = [];
    const ends: (() => void)[] = [];
    let onRun = (_text: string): unknown => undefined;
    const listen = async (_: unknown, onEnd: () => void): Promise<ListeningConnection> => {
      state.made += 1;
      if (state.away) {
        // A client tells of a connection that could not be made by an event, too.
        onEnd();
        throw new Error("away");
      }
      ends.push(onEnd);
      const run = async ({ text }: PgQuery) => {
        sent.push(text);
        await onRun(text);
        if (!state.answers) throw new Error("no answer");
        return { rows: [{ pid: "7" }] };
      };
      return { run, processId: state.processId, close: () => void (state.closed += 1) };
    };
    const listener = new Listener({
      driver: { listen } as unknown as Driver,
      clock,
      chance: new SeededChance(1),
      onNotification: () => {},
      onSilence: () => told.push("silent"),
      onReconnect: () => told.push("back"),
    });
    const probes = async (ms: number): Promise<number> => {
      sent.length = 0;
      await clock.advance(ms);
      return sent.filter((text) => text === "SELECT 1").length;
    };
    const use = (run: typeof onRun): void => void (onRun = run);
    /** Of the newest connection, or of that one. */
    const end = (at = -1): void => ends.at(at)?.();
    return { clock, state, sent, told, listener, probes, end, onRun: use };
  }

  test("listens, and is asked every five seconds whether it is there", async () => {
    const { clock, state, sent, told, listener, probes } = listening();
    expect(await listener.open("mine")).toBe(true);
    expect(sent).toEqual(["SELECT pg_backend_pid()::text AS pid", 'LISTEN "mine"']);
    listener.add("more", () => {});
    expect(sent.at(-1)).toBe('LISTEN "more"');
    expect(await probes(60_000)).toBe(12);
    sent.length = 0;
    listener.probe();
    listener.probe();
    await clock.advance(0);
    expect(sent).toEqual(["SELECT 1"]);
    listener.remove("more");
    expect(await probes(4999)).toBe(0);
    listener.close();
    expect(sent).toContain('UNLISTEN "mine"');
    expect(state.closed).toBe(1);
    expect(clock.pending).toBe(0);
    expect(await probes(HOUR_MS)).toBe(0);
    expect(told).toEqual([]);
  });

  test("that is silent is closed, told of, and made anew with all of its channels", async () => {
    const { clock, state, sent, told, listener } = listening();
    await listener.open("mine");
    listener.add("more", () => {});
    [state.answers, state.away] = [false, true];
    await clock.advance(60_000);
    expect(told).toEqual(["silent"]);
    expect(state.closed).toBe(1);
    const { made } = state;
    expect(made).toBeGreaterThan(5);
    expect(made).toBeLessThan(300);
    [state.answers, state.away] = [true, false];
    sent.length = 0;
    await clock.advance(10_000);
    expect(told).toEqual(["silent", "back"]);
    expect(sent).toEqual(expect.arrayContaining(['LISTEN "mine"', 'LISTEN "more"', "SELECT 1"]));
    const before = state.made;
    await clock.advance(60_000);
    expect(state.made).toBe(before);
    listener.close();
    expect(clock.pending).toBe(0);
  });

  test("that ends is made anew, and one that was given up may end as late as it likes", async () => {
    const { clock, state, sent, told, listener, probes, end } = listening();
    await listener.open("mine");
    end();
    sent.length = 0;
    // There is none to ask.
    listener.probe();
    listener.add("more", () => {});
    listener.remove("more");
    expect([state.closed, sent]).toEqual([0, []]);
    await clock.advance(10_000);
    expect([state.made, told]).toEqual([2, ["back"]]);
    expect(sent).not.toContain('LISTEN "more"');
    end(0);
    expect(await probes(60_000)).toBe(12);
    expect([state.made, told]).toEqual([2, ["back"]]);
    listener.close();
    end();
    listener.probe();
    await clock.advance(HOUR_MS);
    expect([state.made, told, clock.pending]).toEqual([2, ["back"], 0]);
  });

  test("that cannot be made is told once, by whoever opens it", async () => {
    const { clock, state, listener } = listening();
    state.away = true;
    await expect(listener.open("mine")).rejects.toThrow("away");
    expect([state.made, clock.pending]).toEqual([1, 0]);
  });

  test("that is asked is not asked again until it has answered; an answer that comes after its end changes nothing", async () => {
    const { clock, state, sent, told, listener, probes, end, onRun } = listening();
    await listener.open("mine");
    let fail = (_cause: Error): void => {};
    onRun((text) => (text === "SELECT 1" ? new Promise((_, reject) => (fail = reject)) : undefined));
    listener.probe();
    listener.probe();
    expect(await probes(60_000)).toBe(0);
    onRun(() => undefined);
    end();
    await clock.advance(1000);
    expect([state.made, told]).toEqual([2, ["back"]]);
    sent.length = 0;
    fail(new Error("ended"));
    await clock.advance(1000);
    expect([state.made, state.closed, told]).toEqual([2, 0, ["back"]]);
    listener.probe();
    await clock.advance(0);
    expect(sent).toEqual(["SELECT 1"]);
    listener.close();
  });

  test("after an outage the next pause is as short as the first", async () => {
    const { clock, state, listener, end } = listening();
    await listener.open("mine");
    state.away = true;
    end();
    await clock.advance(60_000);
    state.away = false;
    await clock.advance(10_000);
    const { made } = state;
    end();
    await clock.advance(25);
    expect(state.made).toBe(made + 1);
    listener.close();
  });

  test("that ends while it begins to listen is not listened on; the next one is", async () => {
    const first = listening();
    const run = first.state;
    first.onRun((text) => text.startsWith("LISTEN") && first.end());
    await expect(first.listener.open("mine")).rejects.toThrow(/ended while/);
    expect([run.closed, first.clock.pending]).toEqual([1, 0]);
    const { clock, state, told, listener, end, onRun } = listening();
    await listener.open("mine");
    end();
    let left = 3;
    onRun((text) => text.startsWith("LISTEN") && left-- > 0 && end());
    await clock.advance(10_000);
    expect([state.made, state.closed, told]).toEqual([5, 3, ["back"]]);
    listener.close();
  });

  test("that is closed while it is made anew leaves nothing open, at whatever step", async () => {
    for (let step = 0; step < 60; step += 1) {
      const { clock, state, sent, told, listener, end } = listening();
      await listener.open("mine");
      end();
      // Every other time the server is away.
      state.away = step % 2 === 1;
      const advanced = clock.advance(25);
      for (let n = 0; n < step / 2; n += 1) await Promise.resolve();
      listener.close();
      const before = [...told];
      await advanced;
      expect(clock.pending, `step ${step}`).toBe(0);
      const { made } = state;
      await clock.advance(HOUR_MS);
      // The first one had ended by itself.
      expect([state.made, told], `step ${step}`).toEqual([made, before]);
      if (!state.away) expect(state.made - state.closed, `step ${step}`).toBe(1);
      expect(sent).not.toContain("SELECT 1");
    }
  });

  test("that is a pooler's does not listen", async () => {
    for (const processId of [8, null]) {
      const { clock, state, listener } = listening();
      state.processId = processId;
      expect(await listener.open("mine")).toBe(false);
      expect(state.closed).toBe(1);
      expect(clock.pending).toBe(0);
    }
  });
});
