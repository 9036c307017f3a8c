import { execFile } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import type { Pool, RowDataPacket } from "mysql2/promise";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemClock } from "../../src/core/clock.js";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { forUpdate, migrationSql, mysqlEngine, openMysql, optimistic } from "../../src/engines/mysql/index.js";
import { MIGRATIONS } from "../../src/engines/mysql/scripts.generated.js";
import { conformanceCases, runCase } from "../../src/testing/conformance/index.js";
import { NO_FAULTS } from "../../src/testing/faults.js";
import { stressTest } from "../../src/testing/stress-test.js";
import { Child } from "../process/child.js";
import { type MariadbServer, poolOf, query, restartMariadb, startMariadb } from "../servers/mariadb.js";
import { pause, until } from "../servers/process.js";
import { control, inSomeTries } from "./rig.js";

let server: MariadbServer;
beforeAll(async () => {
  server = await startMariadb();
}, 120_000);
afterAll(() => server.running.stop());

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

function pooled(url = server.url, options = {}): Pool {
  const pool = poolOf(url, { connectionLimit: 20, ...options });
  cleanups.push(() => pool.end());
  return pool;
}

async function locksOn(url = server.url) {
  const locks = await connect(url);
  cleanups.push(() => locks.close());
  return locks;
}

const owner = { client: "c", host: "h", pid: 1 };
const ask = { units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner };
const count = async (table: string, schema = "holdfast"): Promise<number> =>
  Number((await query(server.url, `SELECT COUNT(*) AS n FROM ${schema}.${table}`))[0]?.n);

test("a server of a test that starts leaves the temporary tables of others alone", async () => {
  const shared = mkdtempSync(join(tmpdir(), "holdfast-shared-"));
  cleanups.push(() => rmSync(shared, { recursive: true }));
  // As they all would have it: whatever is in there when a server starts is taken for its own, and removed.
  chmodSync(shared, 0o777);
  const table = join(shared, "#sql-temptable-1-1-1.MAI");
  writeFileSync(table, "");
  const other = await startMariadb([], { TMPDIR: shared });
  cleanups.push(() => other.running.stop());
  expect(existsSync(table)).toBe(true);
}, 120_000);

test("pitfall 46: sixteen processes make the schema at once", async () => {
  const code = `
    const { connect } = await import("./dist/index.js");
    const locks = await connect(process.argv[1]);
    await locks.mutex("first").using(() => {});
    await locks.close();`;
  const url = `${server.url}?schema=sixteen`;
  const run = (): Promise<unknown> =>
    promisify(execFile)(process.execPath, ["--input-type=module", "-e", code, url], { timeout: 80_000 });
  await Promise.all(Array.from({ length: 16 }, run));
  expect(await count("migration", "sixteen")).toBe(MIGRATIONS.length);
}, 100_000);

test("a program that does not know of it calls procedures while they are made anew, and finds each of them", async () => {
  const pool = pooled();
  const migrate = async (): Promise<void> =>
    (await mysqlEngine(pool, { schema: "anew", wake: "poll" }))[Symbol.asyncDispose]();
  await migrate();
  const done = new AbortController();
  let calls = 0;
  const caller = async (): Promise<void> => {
    while (!done.signal.aborted) {
      await pool.query("CALL anew.release('n', 'id', 0, 1, NULL, 'c')");
      await pool.query("CALL anew.read_cell('n')");
      calls += 1;
    }
  };
  const calling = Promise.all([caller(), caller()]).catch((error: unknown) => error);
  for (let turn = 1; turn <= 20; turn += 1) {
    await query(server.url, "DELETE FROM anew.migration");
    await migrate();
  }
  done.abort();
  expect(await calling).not.toBeInstanceOf(Error);
  expect(calls).toBeGreaterThan(0);
});

test("connections killed under load: nothing overlaps, nothing is left behind", async () => {
  let killed = 0;
  const done = new AbortController();
  await query(server.url, "CREATE USER IF NOT EXISTS victim; GRANT ALL ON *.* TO victim");
  const url = server.url.replace("root@", "victim@");
  const killer = (async () => {
    while (!done.signal.aborted) {
      const text = "SELECT id FROM information_schema.processlist WHERE user = 'victim' ORDER BY RAND() LIMIT 3";
      for (const { id } of await query(server.url, text)) {
        // It may be gone already.
        await query(server.url, `KILL ${Number(id)}`).then(
          () => (killed += 1),
          () => {},
        );
      }
      await sleep(150);
    }
  })();
  const pool = pooled(url);
  // Each time that it is opened a connection may be killed, and those that the pool has idle together with it.
  const open = (tries = 10): ReturnType<typeof mysqlEngine> =>
    mysqlEngine(pool, { schema: "killed" }).catch((error: unknown) => {
      if (tries === 1) throw error;
      return open(tries - 1);
    });
  const result = await stressTest({
    engine: () => open(),
    leaseStepMs: 500,
    rounds: 5,
    faults: { ...NO_FAULTS },
    lateMs: 1000,
  }).finally(() => done.abort());
  await killer;
  expect(result.violations).toEqual([]);
  expect(killed, "somebody was killed").toBeGreaterThan(0);
}, 120_000);

test("the server killed and started again under load: holds end in time, tokens grow, locking goes on", async () => {
  let own = await startMariadb();
  cleanups.push(() => own.running.stop());
  const pool = pooled(own.url);
  let opened = 0;
  const running = stressTest({
    engine: async () => {
      const engine = await mysqlEngine(pool);
      opened += 1;
      return engine;
    },
    leaseStepMs: 500,
    rounds: 10,
    faults: { ...NO_FAULTS },
    lateMs: 1000,
  });
  await until("all clients are open", () => opened === 4, 60_000);
  await sleep(800);
  await own.running.end("SIGKILL");
  await sleep(300);
  own = await restartMariadb(own);
  const result = await running;
  expect(result.violations).toEqual([]);
}, 120_000);

test("pitfall 45: a client stopped in the middle of anything blocks nobody beyond its lease", async () => {
  const others = await locksOn();
  for (const afterMs of [0, 3, 400]) {
    const name = `stopped ${afterMs}`;
    const child = new Child({ url: server.url, name, acquire: { leaseMs: 1000 } });
    await child.tells("ready");
    await sleep(afterMs);
    child.signal("SIGSTOP");
    // While it stands still: what it kept locked in the database would be locked for ever.
    await others.mutex(name).using({ waitMs: 30_000 }, () => {});
    expect(
      await query(server.url, "SELECT * FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"),
    ).toEqual([]);
    child.signal("SIGKILL");
  }
}, 60_000);

test("pitfall 53: only our own wait is ever interrupted, and no message is overlooked", async () => {
  const pool = pooled();
  const [a, b] = [await mysqlEngine(pool), await mysqlEngine(pool)];
  cleanups.push(
    () => a[Symbol.asyncDispose](),
    () => b[Symbol.asyncDispose](),
  );
  // Those of earlier tests whose clients were killed are kept for a minute.
  await query(server.url, "DELETE FROM holdfast.message");
  const pushed = new Map<string, () => void>();
  b.listen((event) => event.kind === "granted" && pushed.get(event.id)?.());
  // Business statements side by side with the listening connections, one of them with a text that looks like ours.
  const open = { business: true };
  const business = [
    "SELECT SLEEP(0.05)",
    "SELECT SLEEP(0.05) /* holdfast somebody */",
    "SELECT IF(1, SLEEP(0.05), 0) AS x",
  ].map(async (sql) => {
    let ran = 0;
    for (; open.business; ran += 1) {
      // 0: slept to the end; 1: interrupted.
      const [row] = await query(server.url, sql);
      expect(Object.values(row ?? {})).toEqual([0]);
    }
    return ran;
  });
  // One that cannot connect in time is the answer too: the machine is busy.
  const machine = control(() => query(server.url, "SELECT 1").catch(() => {}));
  const slow: number[] = [];
  for (let n = 0; n < 60; n += 1) {
    const [first, second] = [`first-${n}-`.padEnd(22, "x"), `second-${n}-`.padEnd(22, "x")];
    await a.claim({ ...ask, name: "woken", id: first });
    await b.claim({ ...ask, name: "woken", id: second });
    const told = new Promise<void>((resolve) => pushed.set(second, resolve));
    const start = performance.now();
    await a.release({ name: "woken", id: first, tombstone: "never" });
    await told;
    const ms = performance.now() - start;
    // A lost wake-up costs the rest of a wait of two seconds; a machine that has no time for anything, everything.
    if (ms > 1500 && machine.worstMs(start) < 500) slow.push(ms);
    await b.release({ name: "woken", id: second, tombstone: "never" });
  }
  open.business = false;
  for (const ran of await Promise.all(business)) expect(ran).toBeGreaterThan(0);
  await machine.stop();
  expect(slow).toEqual([]);
  await until("no message is left", async () => (await count("message")) === 0);
}, 60_000);

test("pitfall 53: a dozen clients wake each other side by side, and no wake-up gets stuck", async () => {
  const pool = pooled(server.url, { connectionLimit: 80 });
  // One that cannot connect in time is the answer too: the machine is busy.
  const machine = control(() => query(server.url, "SELECT 1").catch(() => {}));
  const slow: number[] = [];
  const pair = async (at: number): Promise<void> => {
    const [a, b] = [await mysqlEngine(pool), await mysqlEngine(pool)];
    cleanups.push(
      () => a[Symbol.asyncDispose](),
      () => b[Symbol.asyncDispose](),
    );
    expect(b.guarantees.wake).toBe("push");
    const pushed = new Map<string, () => void>();
    b.listen((event) => event.kind === "granted" && pushed.get(event.id)?.());
    for (let n = 0; n < 20; n += 1) {
      const [name, first, second] = [
        `dozen ${at}`,
        `first-${at}-${n}-`.padEnd(22, "x"),
        `second-${at}-${n}-`.padEnd(22, "x"),
      ];
      await a.claim({ ...ask, name, id: first });
      await b.claim({ ...ask, name, id: second });
      const told = new Promise<void>((resolve) => pushed.set(second, resolve));
      const start = performance.now();
      await a.release({ name, id: first });
      await told;
      const ms = performance.now() - start;
      if (ms > 1500 && machine.worstMs(start) < 500) slow.push(ms);
      await b.release({ name, id: second });
    }
  };
  await Promise.all([0, 1, 2, 3, 4, 5, 6].map(pair));
  await machine.stop();
  expect(slow).toEqual([]);
}, 60_000);

type Query = (query: { sql: string }, done: (error: null, result: unknown) => void) => unknown;

/** A pool whose calls that wake somebody are made by `wake`. */
function pooledWithWake(schema: string, wake: (send: Query) => Query): Pool {
  const pool = pooled();
  pool.pool.on("connection", (connection: { query: Query }) => {
    const send = connection.query.bind(connection);
    const own = wake(send);
    const wakes = `CALL \`${schema}\`.wake(`;
    connection.query = (query, done) => (query.sql.startsWith(wakes) ? own(query, done) : send(query, done));
  });
  return pool;
}

test("a server that wakes late is not taken for one that cannot", async () => {
  let delayed = 0;
  const pool = pooledWithWake("late", (send) => (query, done) => {
    delayed += 1;
    // As on a busy machine: the first takes nearly as long as the wait that it is to end.
    return delayed > 1 ? send(query, done) : setTimeout(() => send(query, done), 1900);
  });
  await using engine = await mysqlEngine(pool, { schema: "late" });
  expect(engine.guarantees.wake).toBe("push");
  expect(delayed).toBeGreaterThan(0);
}, 60_000);

test("on a server where a wait cannot be ended the engine polls, and says so", async () => {
  const pool = pooledWithWake("never", () => (_, done) => setImmediate(() => done(null, [])));
  await using engine = await mysqlEngine(pool, { schema: "never" });
  expect(engine.guarantees.wake).toBe("poll");
  const warning = await new Promise((resolve) => void engine.listen(resolve));
  expect(warning).toMatchObject({ kind: "warning", message: expect.stringContaining("does not let a client end") });
}, 60_000);

test("pitfall 53: a connection id that belongs to somebody else by now is not hit", async () => {
  const engine = await openMysql(server.url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const text = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK(CONCAT%'";
  await until("it waits", async () => (await query(server.url, text)).length > 0);
  const [waiting] = await query(server.url, text);
  await query(server.url, `KILL ${Number(waiting?.id)}`);
  // The client of that message is woken while its connection is gone, and a new one is made.
  const business = query(server.url, "SELECT SLEEP(0.3) AS slept");
  await engine.claim({ ...ask, name: "reused", id: "r".repeat(22) });
  expect((await business)[0]?.slept).toBe(0);
  expect(await engine.release({ name: "reused", id: "r".repeat(22) })).toBe("released");
});

test("pitfall 53: a message whose removal is interrupted is not told again", async () => {
  const engine = await mysqlEngine(pooled(), { schema: "twice" });
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const told: string[] = [];
  engine.listen((event) => event.kind === "lost" && told.push(event.id));
  const [holder, waiter] = ["h", "w"].map((letter) => ({ ...ask, name: "twice", id: letter.repeat(22) }));
  if (holder === undefined || waiter === undefined) throw new Error("no claims");
  await engine.claim(holder);
  await engine.claim(waiter);
  const [row] = await query(server.url, "SELECT client FROM twice.claim LIMIT 1");
  const wake = () => query(server.url, "CALL twice.wake(?)", [row?.client]);
  const write = (id: string) =>
    query(server.url, "INSERT INTO twice.message (client, event, ends_at) VALUES (?, ?, 8000000000000000000)", [
      row?.client,
      Buffer.from(JSON.stringify({ kind: "lost", name: "twice", id })),
    ]);
  const reader = await pooled().getConnection();
  cleanups.push(() => reader.release());
  await reader.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
  // A message that can be read and not be removed. When it is fetched before it is locked, another is written.
  const messages: string[] = [];
  for (let locked = 0; locked === 0; ) {
    messages.push(`message ${messages.length}`);
    await write(messages.at(-1) ?? "");
    await reader.beginTransaction();
    const [rows] = await reader.query("SELECT seq FROM twice.message FOR UPDATE");
    locked = (rows as readonly unknown[]).length;
    if (locked === 0) await reader.rollback();
  }
  const removal = "SELECT query_id FROM information_schema.processlist WHERE info LIKE 'DELETE FROM `twice`.message%'";
  const removing = async () => Number((await query(server.url, removal))[0]?.query_id ?? 0);
  await wake();
  await until("its removal has begun", async () => (await removing()) > 0);
  const first = await removing();
  await wake();
  await until("its removal was interrupted, and begun again", async () => (await removing()) > first);
  await reader.rollback();
  await until("it is removed", async () => (await count("message", "twice")) === 0);
  await write("last");
  await until("the next is told", () => told.includes("last"));
  expect(told).toEqual([...messages, "last"]);
});

test("the release of a name that was handed over the last time is one statement, and a plain one when nobody waits any more", async () => {
  const pool = pooled();
  const texts: string[] = [];
  pool.pool.on("connection", (connection) => {
    const send = connection.query.bind(connection) as (query: unknown, ...rest: unknown[]) => unknown;
    const noted = (query: { sql: string }, ...rest: unknown[]): unknown => {
      const [, kind] = /^(UPDATE|CALL).*?\.`?(?:name SET taken|release)/s.exec(query.sql) ?? [];
      if (kind !== undefined) texts.push(kind);
      return send(query, ...rest);
    };
    Object.assign(connection, { query: noted });
  });
  const [holders, waiters] = [
    await mysqlEngine(pool, { schema: "again" }),
    await mysqlEngine(pooled(), { schema: "again" }),
  ];
  cleanups.push(() => Promise.all([holders[Symbol.asyncDispose](), waiters[Symbol.asyncDispose]()]));
  const told: string[] = [];
  waiters.listen((event) => event.kind === "granted" && told.push(event.id));
  const claimOf = (id: string) => ({ ...ask, name: "again", id, tombstone: "never" as const });
  for (const round of ["1", "2"]) {
    expect((await holders.claim(claimOf(`holder ${round}`))).kind).toBe("granted");
    expect((await waiters.claim(claimOf(`waiter ${round}`))).kind).toBe("queued");
    expect(await holders.release(claimOf(`holder ${round}`))).toBe("released");
    await until("the waiter is told", () => told.includes(`waiter ${round}`));
    expect(await waiters.release(claimOf(`waiter ${round}`))).toBe("released");
  }
  expect(texts.splice(0)).toEqual(["UPDATE", "CALL", "CALL"]);
  for (const id of ["alone 1", "alone 2"]) {
    await holders.claim(claimOf(id));
    expect(await holders.release(claimOf(id))).toBe("released");
  }
  expect(texts).toEqual(["CALL", "UPDATE"]);
});

test("the listening connection waits longer than a call may take", async () => {
  const engine = await inSomeTries(() => openMysql(server.url, { callTimeoutMs: 1500, schema: "short" }));
  cleanups.push(() => engine[Symbol.asyncDispose]());
  // Of a procedure it shows the statement under way.
  const text =
    "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK(CONCAT(''holdfast wait ''%'";
  await until("it waits", async () => (await query(server.url, text)).length > 0);
  const before = await query(server.url, text);
  await pause(5000);
  await until("it waits again", async () => (await query(server.url, text)).length > 0);
  expect(await query(server.url, text)).toEqual(before);
});

test("a call that is killed in the middle keeps no row locked, and nothing of it is committed by the next one", async () => {
  const pool = pooled(server.url, { connectionLimit: 1 });
  const engine = await mysqlEngine(pool, { schema: "cut", wake: "poll", callTimeoutMs: 60_000 });
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const claims = ["x", "y"].map((name) => ({ ...ask, name, id: `${name}-in-the-middle-of-a-call` }));
  for (const claim of claims) expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
  const ends = async (): Promise<unknown> => {
    const states = [];
    for await (const { holders } of engine.inspect()) states.push(holders.map(({ leftMs }) => leftMs > 60_000));
    return states;
  };
  // Both are renewed by one call; this stops it when the first one is done, in a step that is no statement: a kill there ends
  // the procedure without asking its handler.
  const [made] = await query(server.url, "SHOW CREATE PROCEDURE cut.renew");
  const whole = String(made?.["Create Procedure"]).replace(
    /^CREATE .*?`renew`/,
    "CREATE OR REPLACE PROCEDURE cut.renew",
  );
  const halted = whole.replace(
    "SET v_answers =",
    "IF v_name = 'y' THEN SET v_over = SLEEP(60); END IF; SET v_answers =",
  );
  await query(server.url, halted);
  const [[connection]] = await pool.query<RowDataPacket[]>("SELECT CONNECTION_ID() AS id");
  const longer = claims.map(({ name, id }) => ({ name, id, leaseMs: 600_000 }));
  const killed = expect(engine.renew(longer)).rejects.toThrow(/interrupted/);
  const asked = `SELECT 1 FROM information_schema.processlist WHERE id = ${connection?.id} AND state = 'User sleep'`;
  await until("the call is in the middle", async () => (await query(server.url, asked)).length > 0);
  await query(server.url, `KILL QUERY ${connection?.id}`);
  await killed;
  const free = (): Promise<boolean> =>
    query(server.url, "SELECT 1 FROM cut.name WHERE name = 'x' FOR UPDATE NOWAIT").then(
      () => true,
      () => false,
    );
  await until("the row is free", free, 20_000);
  expect(await ends()).toEqual([[false], [false]]);
  await query(server.url, whole);
  expect(await engine.renew(longer)).toMatchObject([{ kind: "granted" }, { kind: "granted" }]);
  expect(await ends()).toEqual([[true], [true]]);
}, 90_000);

test("pitfall 44: names are compared byte by byte whatever the collation, and belong to no connection", async () => {
  const pool = pooled(server.url, { charset: "latin1" });
  const engine = await mysqlEngine(pool, { schema: "Bytes" });
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const names = ["case", "Case", "case ", "ß", "ss", "🔒", "é", "e\u0301", "x".repeat(512)];
  for (const [n, name] of names.entries()) {
    expect(await engine.claim({ ...ask, name, id: `${n}`.padEnd(22, "i"), wait: false })).toMatchObject({
      kind: "granted",
    });
  }
  const seen: string[] = [];
  for await (const state of engine.inspect()) seen.push(state.name);
  expect(seen.toSorted()).toEqual(names.toSorted());
  for (const [n, name] of names.entries()) {
    expect(await engine.release({ name, id: `${n}`.padEnd(22, "i") })).toBe("released");
  }
});

test("pitfall 23: a release is answered: released once, then gone", async () => {
  const engine = await openMysql(server.url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  await engine.claim({ ...ask, name: "once", id: "o".repeat(22) });
  expect(await engine.release({ name: "once", id: "o".repeat(22), tombstone: "never" })).toBe("released");
  expect(await engine.release({ name: "once", id: "o".repeat(22) })).toBe("gone");
});

test("a queue that counts a waiter too many: nobody is made to hold what nobody holds, and the name is free again", async () => {
  const pool = pooled();
  const engine = await mysqlEngine(pool, { callTimeoutMs: 5000 });
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const name = "a waiter that is gone";
  const claim = (id: string) => ({ ...ask, name, id, leaseMs: 600_000 });
  const [holder, waiter, next] = ["holder", "waiter", "next"].map((id) => claim(id.padEnd(22, "-"))) as [
    ReturnType<typeof claim>,
    ReturnType<typeof claim>,
    ReturnType<typeof claim>,
  ];
  expect((await engine.claim(holder)).kind).toBe("granted");
  expect((await engine.claim(waiter)).kind).toBe("queued");
  // As no program of ours leaves it: somebody deleted the row by hand, or restored a part of the tables.
  await pool.query("DELETE FROM holdfast.claim WHERE name = ? AND holds = 0", [Buffer.from(name)]);
  await expect(engine.release({ ...holder, tombstone: "never" })).rejects.toThrow("a waiter is missing");
  const rows = async () =>
    (
      await pool.query<RowDataPacket[]>("SELECT taken, holders, soonest_end FROM holdfast.name WHERE name = ?", [
        Buffer.from(name),
      ])
    )[0];
  // It is what it was: held, and for as long as the lease lasts.
  expect(await rows()).toMatchObject([{ taken: 1, holders: 1 }]);
  expect(Number((await rows())[0]?.soonest_end)).toBeLessThan(8e18);
  // What counts too many is put right by hand too.
  await pool.query("UPDATE holdfast.name SET waiters = 0 WHERE name = ?", [Buffer.from(name)]);
  expect(await engine.release({ ...holder, tombstone: "never" })).toBe("released");
  expect((await engine.claim(next)).kind).toBe("granted");
});

test("pitfall 19: busy is a value, a refusal is an error, a server that is away is another", async () => {
  const locks = await locksOn();
  const hold = await locks.mutex("taken").acquire();
  expect(await locks.mutex("taken").tryAcquire()).toBeNull();
  await hold.release();
  await query(server.url, "CREATE USER IF NOT EXISTS poor IDENTIFIED BY 'right'");
  await expect(connect(server.url.replace("root@", "poor:right@"))).rejects.toThrow(EngineRefusedError);
  const wrong = connect(server.url.replace("root@", "poor:secret@"));
  await expect(wrong).rejects.toThrow(EngineRefusedError);
  await expect(wrong).rejects.not.toThrow(/secret/);
  await expect(connect("mysql://someone:secret@127.0.0.1:1")).rejects.toThrow(EngineUnavailableError);
});

test("the rights in the docs are enough to poll, and without the right to make tables it says what to do", async () => {
  await locksOn(`${server.url}?schema=given`);
  await query(server.url, "CREATE USER IF NOT EXISTS modest");
  const url = server.url.replace("root@", "modest@");
  await expect(connect(`${url}?schema=other&migrate=false`)).rejects.toThrow(EngineRefusedError);
  await query(server.url, "GRANT SELECT, INSERT, UPDATE, DELETE, EXECUTE ON given.* TO modest");
  await expect(connect(`${url}?schema=given&migrate=false`).then((locks) => locks.close())).resolves.toBeUndefined();
  const locks = await locksOn(`${url}?schema=given&migrate=false&wake=poll`);
  expect(locks.guarantees.wake).toBe("poll");
  await locks.mutex("modest").using(() => {});
  expect(migrationSql("given")).toContain("CREATE PROCEDURE `given`.claim(");
});

test("a server that only reads is refused, and says what it means", async () => {
  await query(server.url, "CREATE USER IF NOT EXISTS reader; GRANT ALL ON readonly.* TO reader");
  const url = `${server.url.replace("root@", "reader@")}?schema=readonly`;
  const locks = await locksOn(url);
  await query(server.url, "SET GLOBAL read_only = 1");
  try {
    await expect(locks.mutex("m").acquire({ waitMs: 2000 })).rejects.toThrow(/replica/);
    await expect(connect(url)).rejects.toThrow(/read only/);
  } finally {
    await query(server.url, "SET GLOBAL read_only = 0");
  }
  await locks.mutex("m").using(() => {});
});

test("pitfall 36: a client whose clock is a day wrong takes, keeps and frees locks like any other", async () => {
  class WrongClock extends SystemClock {
    override wallMs(): number {
      return super.wallMs() - 86_400_000;
    }
  }
  const pool = pooled();
  const [right, wrong] = [await mysqlEngine(pool), await mysqlEngine(pool, { clock: new WrongClock() })];
  cleanups.push(
    () => right[Symbol.asyncDispose](),
    () => wrong[Symbol.asyncDispose](),
  );
  const [a, b] = [await connect(right), await connect(wrong, { clock: new WrongClock() })];
  cleanups.push(() => Promise.all([a.close(), b.close()]));
  const tokens: number[] = [];
  for (const locks of [a, b, a, b]) await locks.mutex("clock").using((hold) => void tokens.push(hold.token));
  expect(tokens).toEqual([...tokens].toSorted((one, two) => one - two));
  const hold = await b.mutex("clock").acquire({ leaseMs: 2000 });
  expect(await a.mutex("clock").tryAcquire()).toBeNull();
  await hold.release();
});

test("pitfall 47: whatever was taken, waited for, abandoned or written, no row stays; tokens grow all the same", async () => {
  const url = `${server.url}?schema=leak`;
  const locks = await locksOn(url);
  const engine = await openMysql(url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const work = Array.from({ length: 40 }, async (_, n) => {
    for (let turn = 0; turn < 3; turn += 1) await locks.mutex(`leak ${n % 10}`).using(() => {});
    await locks.semaphore(`leak s${n}`, 3).using({ permits: 2 }, () => {});
  });
  await Promise.all(work);
  for (let n = 0; n < 10; n += 1)
    await engine.claim({ ...ask, name: `dead ${n}`, id: `${n}`.repeat(22), leaseMs: 100 });
  const cells = engine.cells;
  const { cell } = (await cells?.write({ name: "cell", operation: "o1", expected: 0, value: "x" })) ?? {};
  await cells?.write({ name: "cell", operation: "o2", expected: cell?.version ?? 0, value: null });
  const far = 4_000_000_000_000_000;
  await engine.claim({ ...ask, name: "far", id: "a".repeat(22), tokenAtLeast: far });
  await engine.release({ name: "far", id: "a".repeat(22), tombstone: "never" });
  await sleep(300);
  // As if a minute had passed: tombstones and operations live that long.
  await query(
    server.url,
    "UPDATE leak.tombstone SET ends_at = 1; UPDATE leak.operation SET ends_at = 1; UPDATE leak.name SET tombstones_end = 1",
  );
  await engine.maintenance();
  for (const table of ["name", "claim", "tombstone", "message", "cell", "operation"]) {
    expect([table, await count(table, "leak")]).toEqual([table, 0]);
  }
  expect(await engine.claim({ ...ask, name: "new", id: "b".repeat(22) })).toMatchObject({ token: far + 1 });
  await engine.release({ name: "new", id: "b".repeat(22), tombstone: "never" });
});

test("a sweep removes no name beyond its batch, and tells where to go on", async () => {
  const engine = await openMysql(`${server.url}?schema=sweeps`);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  for (const name of ["a", "b", "c", "d", "e"]) {
    const claim = { ...ask, name, id: name.repeat(22) };
    await engine.claim(claim);
    await engine.release({ ...claim, tombstone: "never" });
  }
  const sweep = async (after: string): Promise<unknown> => {
    // A call answers with a list of its results.
    const [rows] = (await query(server.url, "CALL sweeps.sweep(?, 2, 0)", [after])) as unknown as {
      answer: string;
    }[][];
    return JSON.parse(rows?.[0]?.answer ?? "");
  };
  expect(await sweep("")).toEqual({ next: "b", rows: 2, full: false });
  expect(await count("name", "sweeps")).toBe(3);
  expect(await sweep("d")).toEqual({ next: null, rows: 1, full: false });
  expect(await sweep("")).toEqual({ next: "d", rows: 2, full: false });
});

test("where pushing is not possible it polls and still hands over", async () => {
  const pool = pooled();
  const one = conformanceCases.find(({ name }) => name.startsWith("clients take turns"));
  if (one === undefined) throw new Error("the case is gone");
  await runCase(one.run, { engine: () => mysqlEngine(pool, { wake: "poll" }), leaseStepMs: 1000 });
}, 60_000);

test("a missing library and a URL that cannot be read are told without the password", async () => {
  const missing = Object.assign(new Error("Cannot find package 'mysql2' imported from x"), {
    code: "ERR_MODULE_NOT_FOUND",
  });
  await expect(openMysql(server.url, {}, () => Promise.reject(missing))).rejects.toThrow("npm install mysql2");
  await expect(openMysql("mysql://u:secret@[bad/x")).rejects.not.toThrow(/secret/);
  await expect(openMysql(`${server.url}?durable=false`)).rejects.toThrow(/none of schema/);
});

type Stock = { id: number; left: number; version: number };

test("row locks: a row is locked until its transaction ends, and skipped or refused on request", async () => {
  await query(
    server.url,
    "CREATE DATABASE shop; CREATE TABLE shop.stock (id INT PRIMARY KEY, `left` INT NOT NULL, version INT NOT NULL DEFAULT 0)",
  );
  await query(server.url, "INSERT INTO shop.stock VALUES (1, 100, 0)");
  const pool = pooled();
  const [one, two] = [await pool.getConnection(), await pool.getConnection()];
  const row = { table: "shop.stock", key: { id: 1 } };
  await one.beginTransaction();
  expect(await forUpdate<Stock>(one, row)).toEqual({ id: 1, left: 100, version: 0 });
  expect(await forUpdate(two, { ...row, busy: "skip" })).toBeNull();
  await expect(forUpdate(two, { ...row, busy: "nowait" })).rejects.toMatchObject({ errno: 1205 });
  await one.commit();
  expect(await forUpdate(two, { ...row, key: { id: 2 } })).toBeNull();
  one.release();
  two.release();
});

test("optimistic: no sale is lost and none is made twice; conflicts and missing rows are values", async () => {
  const pool = pooled();
  const row = { table: "shop.stock", key: { id: 1 } };
  const buy = () =>
    optimistic<Stock>(pool, { ...row, attempts: 200 }, ({ left }) => (left > 0 ? { left: left - 1 } : null));
  const answers = await Promise.all(Array.from({ length: 120 }, buy));
  expect(answers.filter(({ kind }) => kind === "written")).toHaveLength(100);
  expect(answers.filter(({ kind }) => kind === "left")).toHaveLength(20);
  expect((await query(server.url, "SELECT * FROM shop.stock"))[0]).toEqual({ id: 1, left: 0, version: 100 });
  const beaten = await optimistic<Stock>(pool, { ...row, attempts: 2 }, async () => {
    await pool.query("UPDATE shop.stock SET version = version + 1");
    return { left: 9 };
  });
  expect(beaten).toEqual({ kind: "conflict", attempts: 2 });
});
