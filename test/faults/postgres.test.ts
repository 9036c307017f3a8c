import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { Client, type Pool } from "pg";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemClock } from "../../src/core/clock.js";
import type { EngineEvent } from "../../src/core/engine.js";
import { EngineRefusedError, EngineUnavailableError, UnsupportedError } from "../../src/core/errors.js";
import { forUpdate, migrationSql, openPostgres, optimistic, postgresEngine } from "../../src/engines/postgres/index.js";
import { MIGRATIONS } from "../../src/engines/postgres/scripts.generated.js";
import { versionMadeBy } from "../../src/sql/migrate.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { Child } from "../process/child.js";
import {
  inStep,
  type PgBouncer,
  type PostgresServer,
  poolOf,
  query,
  startPgBouncer,
  startPostgres,
  startReplica,
} from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { loadWhileKilled, loadWhileRestarted, pairsWhileForgotten } from "./postgres-load.js";
import { inSomeTries } from "./rig.js";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
}, 120_000);
afterAll(() => server.running.stop());

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

function pooled(url = server.url, options = {}): Pool {
  const pool = poolOf(url, options);
  cleanups.push(() => pool.end());
  return pool;
}

async function locksOn(url = server.url, options = {}) {
  const locks = await connect(url, options);
  cleanups.push(() => locks.close());
  return locks;
}

const count = async (table: string, schema = "holdfast"): Promise<number> =>
  Number((await query(server.url, `SELECT count(*)::int AS n FROM ${schema}.${table}`))[0]?.n);

test("pitfall 46: sixteen processes make the schema at once", async () => {
  const code = `
    const { connect } = await import("./dist/index.js");
    const locks = await connect(process.argv[1]);
    await locks.mutex("first").using(() => {});
    await locks.close();`;
  const url = `${server.url}?schema=sixteen`;
  const run = (): Promise<unknown> =>
    promisify(execFile)(process.execPath, ["--input-type=module", "-e", code, url], { timeout: 60_000 });
  await Promise.all(Array.from({ length: 16 }, run));
  const made = await query(server.url, "SELECT number FROM sixteen.migration ORDER BY number");
  expect(made.map((row) => row.number)).toEqual(MIGRATIONS.map((_, at) => versionMadeBy("postgres", at).number));
}, 90_000);

test("pitfall 46: a schema made by other means at the same moment is no obstacle, and migrating again does nothing", async () => {
  await Promise.all(
    Array.from({ length: 6 }, async () => {
      const engine = await postgresEngine(pooled(), { schema: "raced" });
      await engine[Symbol.asyncDispose]();
    }),
  );
  await query(server.url, migrationSql("raced"));
  expect(await count("migration", "raced")).toBe(MIGRATIONS.length);
});

test("connections killed by the server under load: nothing overlaps, nothing is left behind", async () => {
  const { violations, killed } = await loadWhileKilled(server.url);
  expect(violations).toEqual([]);
  expect(killed, "somebody was killed").toBeGreaterThan(0);
}, 120_000);

test("the server killed and started again under load: holds end in time, tokens grow, locking goes on", async () => {
  const { violations, left, inTime } = await loadWhileRestarted(await startPostgres());
  expect(violations).toEqual([]);
  expect({ left, inTime }).toEqual({ left: 0, inTime: true });
}, 120_000);

test("a connection of the pool on which somebody forgot all prepared statements is no obstacle", async () => {
  const { prepared, kinds } = await pairsWhileForgotten(server.url);
  expect(prepared).toBeGreaterThan(0);
  expect(kinds).toEqual(["granted", "granted", "released", "granted", "granted", "released"]);
});

test("pitfall 45: a client stopped in the middle of anything blocks nobody beyond its lease", async () => {
  const others = await locksOn();
  for (const afterMs of [0, 3, 400]) {
    const name = `stopped ${afterMs}`;
    const child = new Child({ url: server.url, name, acquire: { leaseMs: 1000 } });
    await child.tells("ready");
    // In the middle of its claim, or when it holds.
    await sleep(afterMs);
    child.signal("SIGSTOP");
    // While it stands still: what it kept locked in the database would be locked for ever.
    await others.mutex(name).using({ waitMs: 30_000 }, () => {});
    // Other names and the same connections' tables were never blocked at all.
    const waiting = await query(server.url, "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'");
    expect(waiting).toEqual([]);
    child.signal("SIGKILL");
  }
}, 60_000);

test("pitfall 45: under load no connection is ever idle in a transaction", async () => {
  const locks = await locksOn();
  const busy = Promise.all(
    Array.from({ length: 40 }, async (_, n) => {
      for (let turn = 0; turn < 8; turn += 1) await locks.mutex(`busy ${n % 4}`).using(() => {});
    }),
  );
  let seen = 0;
  for (let look = 0; look < 15; look += 1) {
    seen += (await query(server.url, "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")).length;
  }
  await busy;
  expect(seen).toBe(0);
});

test("pitfall 45: behind somebody's open transaction a call gives up, and no server process goes on waiting", async () => {
  const locks = await locksOn(server.url, { callTimeoutMs: 8000 });
  await (await locks.mutex("stuck").acquire()).release();
  const operator = new Client({ connectionString: server.url });
  await operator.connect();
  cleanups.push(() => operator.end());
  await operator.query("BEGIN");
  await operator.query("SELECT FROM holdfast.name WHERE name = 'stuck' FOR UPDATE");
  await expect(locks.mutex("stuck").tryAcquire({ waitMs: 0 })).rejects.toBeInstanceOf(EngineUnavailableError);
  const waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%holdfast%'";
  await until("nobody waits in the server", async () => (await query(server.url, waiting)).length === 0);
  await operator.query("COMMIT");
  await (await locks.mutex("stuck").acquire()).release();
}, 60_000);

test("the connection that stays in hand: more calls than connections all get through, and a broken one is replaced", async () => {
  const engine = await openPostgres(server.url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const claim = (n: number) => ({
    name: `burst ${n}`,
    id: `burst-${n}-`.padEnd(22, "x"),
    units: 1,
    capacity: 1,
    leaseMs: 10_000,
    wait: false,
    owner: { client: "c", host: "h", pid: 1 },
  });
  const burst = Array.from({ length: 100 }, async (_, n) => {
    expect(await engine.claim(claim(n))).toMatchObject({ kind: "granted" });
    expect(await engine.release({ ...claim(n), tombstone: "never" })).toBe("released");
  });
  await Promise.all(burst);
  const others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'";
  const pids = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'";
  const broken = new Set((await query(server.url, pids)).map(({ pid }) => pid));
  await query(server.url, others);
  await until("they have ended", async () => !(await query(server.url, pids)).some(({ pid }) => broken.has(pid)));
  await sleep(200);
  // The first call after that goes through: what was broken while nobody used it is not used.
  expect(await engine.claim(claim(100))).toMatchObject({ kind: "granted" });
});

test("a stalled network: calls end in time, the pool is usable again as soon as it heals", async () => {
  const proxy = await Proxy.to(server.port);
  cleanups.push(() => proxy.close());
  const url = `postgres://postgres@127.0.0.1:${proxy.port}/postgres`;
  const engine = await inSomeTries(() => openPostgres(url, { callTimeoutMs: 2_000 }));
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const events: EngineEvent[] = [];
  engine.listen((event) => events.push(event));
  const owner = { client: "c", host: "h", pid: 1 };
  const claim = { name: "stalled", id: "a".repeat(22), units: 1, capacity: 1, leaseMs: 5000, wait: true, owner };
  expect((await engine.claim(claim)).kind).toBe("granted");
  proxy.stall();
  // One after the other they would end after this timer, on any machine: timers run in their order.
  let late = false;
  const timer = setTimeout(() => (late = true), 10_000);
  await Promise.all(
    Array.from({ length: 20 }, () =>
      expect(engine.renew([claim])).rejects.toThrow(/no answer|timeout|no free connection/i),
    ),
  );
  expect(late).toBe(false);
  clearTimeout(timer);
  proxy.cut();
  proxy.heal();
  await until("it answers again", () =>
    engine.renew([claim]).then(
      ([one]) => one?.kind === "granted",
      () => false,
    ),
  );
  await until("it listens again", () => events.some(({ kind }) => kind === "wake"));
  expect(await engine.release(claim)).toBe("released");
}, 40_000);

describe("behind PgBouncer in transaction mode", () => {
  let bouncer: PgBouncer;
  let pool: Pool;
  beforeAll(async () => {
    bouncer = await startPgBouncer(server);
    pool = poolOf(bouncer.url, { max: 12 });
  }, 60_000);
  afterAll(async () => {
    await pool.end();
    await bouncer.running.stop();
  });

  test("it polls, and says so", async () => {
    const engine = await postgresEngine(pool);
    const events: EngineEvent[] = [];
    engine.listen((event) => events.push(event));
    expect(engine.guarantees.wake).toBe("poll");
    await until("a warning", () => events.length > 0);
    expect(events).toEqual([{ kind: "warning", message: expect.stringContaining("pooler") }]);
    await engine[Symbol.asyncDispose]();
    await expect(connect(engine, { require: { wake: "push" } })).rejects.toThrow(UnsupportedError);
  });

  test("pitfall 23: every release is answered, and strands nothing whichever connection it takes", async () => {
    const locks = await connect(await postgresEngine(pool, { wake: "poll" }));
    const work = Array.from({ length: 20 }, async (_, n) => {
      for (let turn = 0; turn < 3; turn += 1) await (await locks.mutex(`bounced ${n}`).acquire()).release();
    });
    await Promise.all(work);
    for await (const state of locks.inspect({ prefix: "bounced" })) expect(state).toBeUndefined();
    await locks.close();
  });

  conformance((name, run) => test.concurrent(name, run, 60_000), {
    engine: () => postgresEngine(pool, { wake: "poll" }),
    // Each hand-over may take two seconds here.
    leaseStepMs: 800,
  });
});

test("an asynchronous replica is promoted: what is lost is what the guarantees said", async () => {
  const primary = await startPostgres();
  cleanups.push(() => primary.running.stop());
  const alone = await openPostgres(primary.url);
  expect(alone.guarantees.exclusion).toBe("single-server");
  await alone[Symbol.asyncDispose]();
  const replica = await startReplica(primary);
  cleanups.push(() => replica.running.stop());
  await until("the replica follows", async () => {
    const rows = await query(primary.url, "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'");
    return rows.length > 0;
  });
  await expect(openPostgres(replica.url)).rejects.toThrow(EngineRefusedError);

  const before = await locksOn(primary.url);
  expect(before.guarantees).toMatchObject({ exclusion: "until-failover", token: "monotonic-if-clocks" });
  await expect(connect(primary.url, { require: { exclusion: "single-server" } })).rejects.toThrow(UnsupportedError);
  const kept = await before.mutex("kept").acquire({ leaseMs: 60_000 });
  await inStep(primary, replica);
  // The replica is cut off: what comes now does not reach it.
  await query(replica.url, "ALTER SYSTEM SET primary_conninfo = ''");
  await query(replica.url, "SELECT pg_reload_conf()");
  await until(
    "the replica is cut off",
    async () => (await query(primary.url, "SELECT 1 FROM pg_stat_replication")).length === 0,
  );
  const lost = await before.mutex("lost").acquire({ leaseMs: 60_000 });
  await primary.running.end("SIGKILL");
  await query(replica.url, "SELECT pg_promote()");
  const after = await locksOn(replica.url);
  expect(await after.mutex("kept").tryAcquire()).toBeNull();
  const again = await after.mutex("lost").tryAcquire();
  // Two holders, as was said beforehand; the second one's token shuts the first one out of any fenced resource.
  expect(again?.token).toBeGreaterThan(lost.token);
  expect(kept.token).toBeLessThan(lost.token);
}, 120_000);

test("pitfall 19: busy is a value, a refusal is an error, a server that is away is another", async () => {
  const locks = await locksOn();
  const hold = await locks.mutex("taken").acquire();
  expect(await locks.mutex("taken").tryAcquire()).toBeNull();
  await hold.release();
  await query(server.url, "CREATE ROLE poor LOGIN");
  const poor = server.url.replace("postgres@", "poor@");
  await expect(connect(`${poor}?schema=nowhere`)).rejects.toThrow(EngineRefusedError);
  await expect(connect(poor)).rejects.toThrow(EngineRefusedError);
  await expect(connect(server.url.replace("/postgres?", "/none").replace(/postgres$/, "none"))).rejects.toThrow(
    EngineRefusedError,
  );
  const away = connect("postgres://someone:secret@127.0.0.1:1/postgres");
  await expect(away).rejects.toThrow(EngineUnavailableError);
  await expect(away).rejects.not.toThrow(/secret/);
});

test("the rights in the docs are enough, and without the right to make tables it says what to do", async () => {
  await query(server.url, "CREATE ROLE modest LOGIN");
  const url = `${server.url.replace("postgres@", "modest@")}?schema=given&migrate=false`;
  await query(server.url, "CREATE SCHEMA IF NOT EXISTS given; GRANT USAGE ON SCHEMA given TO modest");
  await expect(connect(url)).rejects.toThrow(/migrationSql/);
  await query(server.url, migrationSql("given"));
  await query(
    server.url,
    `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA given TO modest;
     GRANT USAGE ON ALL SEQUENCES IN SCHEMA given TO modest`,
  );
  const locks = await locksOn(url);
  await locks.mutex("modest").using(() => {});
});

test("pitfall 36: a client whose clock is a day wrong takes, keeps and frees locks like any other", async () => {
  class WrongClock extends SystemClock {
    override wallMs(): number {
      return super.wallMs() - 86_400_000;
    }
  }
  const [right, wrong] = [await postgresEngine(pooled()), await postgresEngine(pooled(), { clock: new WrongClock() })];
  cleanups.push(
    () => right[Symbol.asyncDispose](),
    () => wrong[Symbol.asyncDispose](),
  );
  const [a, b] = [await connect(right), await connect(wrong, { clock: new WrongClock() })];
  cleanups.push(() => Promise.all([a.close(), b.close()]));
  const tokens: number[] = [];
  for (const locks of [a, b, a, b]) await locks.mutex("clock").using((hold) => void tokens.push(hold.token));
  expect(tokens).toEqual([...tokens].toSorted((one, two) => one - two));
  const hold = await b.mutex("clock").acquire({ leaseMs: 60_000 });
  expect(hold.remainingMs).toBeGreaterThan(30_000);
  expect(await a.mutex("clock").tryAcquire()).toBeNull();
  await hold.release();
});

test("pitfall 44: a lock belongs to its claim, not to a connection, and names differ by case", async () => {
  const pool = pooled(server.url, { max: 1, maxUses: 1 });
  const engine = await postgresEngine(pool);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const locks = await connect(engine);
  const hold = await locks.mutex("Case").acquire();
  const other = await locks.mutex("case").tryAcquire();
  expect(other).not.toBeNull();
  await sleep(50);
  await hold.release();
  await other?.release();
  await locks.close();
});

test("pitfall 47: whatever was taken, waited for, abandoned or written, no row stays", async () => {
  const url = `${server.url}?schema=leak`;
  const locks = await locksOn(url);
  const engine = await openPostgres(url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const work = Array.from({ length: 60 }, async (_, n) => {
    for (let turn = 0; turn < 3; turn += 1) await locks.mutex(`leak ${n % 15}`).using(() => {});
    await locks.semaphore(`leak s${n}`, 3).using({ permits: 2 }, () => {});
  });
  await Promise.all(work);
  const owner = { client: "c", host: "h", pid: 1 };
  for (let n = 0; n < 10; n += 1) {
    const claim = { name: `dead ${n}`, id: `${n}`.repeat(22), units: 1, capacity: 1, leaseMs: 100, wait: true, owner };
    await engine.claim(claim);
  }
  const cells = engine.cells;
  const { cell } = (await cells?.write({ name: "cell", operation: "o1", expected: 0, value: "x" })) ?? {};
  await cells?.write({ name: "cell", operation: "o2", expected: cell?.version ?? 0, value: null });
  await sleep(300);
  // As if a minute had passed: tombstones and operations live that long.
  await query(server.url, "UPDATE leak.tombstone SET ends_at = now(); UPDATE leak.operation SET ends_at = now()");
  await query(server.url, "UPDATE leak.name SET tombstones_end = least(tombstones_end, now())");
  await engine.maintenance();
  for (const table of ["name", "claim", "tombstone", "cell", "operation"])
    expect([table, await count(table, "leak")]).toEqual([table, 0]);
  const [row] = await query(server.url, "SELECT token_floor::text AS floor FROM leak.store");
  expect(Number(row?.floor)).toBeGreaterThan(1e15);
});

test("a sweep removes no name beyond its batch, and tells where to go on", async () => {
  const engine = await openPostgres(`${server.url}?schema=sweeps`);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const owner = { client: "c", host: "h", pid: 1 };
  for (const name of ["a", "b", "c", "d", "e"]) {
    const claim = { name, id: name.repeat(22), units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner };
    await engine.claim(claim);
    await engine.release({ ...claim, tombstone: "never" });
  }
  const sweep = async (after: string): Promise<unknown> => {
    const [row] = await query(server.url, "SELECT sweeps.sweep($1, 2, 0) AS answer", [after]);
    return JSON.parse(row?.answer as string);
  };
  expect(await sweep("")).toEqual({ next: "b", rows: 2, full: false });
  expect(await count("name", "sweeps")).toBe(3);
  expect(await sweep("d")).toEqual({ next: null, rows: 1, full: false });
  expect(await sweep("")).toEqual({ next: "d", rows: 2, full: false });
});

test("tokens grow although a name was forgotten and the server's clock went back", async () => {
  const url = `${server.url}?schema=back`;
  const engine = await openPostgres(url);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  const owner = { client: "c", host: "h", pid: 1 };
  const ask = { name: "n", units: 1, capacity: 1, leaseMs: 1000, wait: true, owner };
  const far = 4_000_000_000_000_000;
  const first = await engine.claim({ ...ask, id: "a".repeat(22), tokenAtLeast: far });
  expect(first).toMatchObject({ kind: "granted", token: far });
  await engine.release({ name: "n", id: "a".repeat(22), tombstone: "never" });
  await engine.maintenance();
  expect(await count("name", "back")).toBe(0);
  expect(await engine.claim({ ...ask, id: "b".repeat(22) })).toMatchObject({ kind: "granted", token: far + 1 });
  expect(await engine.release({ name: "n", id: "b".repeat(22), tombstone: "never" })).toBe("released");
});

test("durable: false commits without waiting for the disk, and guarantees less", async () => {
  const engine = await openPostgres(`${server.url}?durable=false`);
  cleanups.push(() => engine[Symbol.asyncDispose]());
  expect(engine.guarantees).toMatchObject({ exclusion: "until-failover", survivesRestart: false });
  const locks = await connect(engine);
  await locks.mutex("fast").using(() => {});
  await locks.close();
});

test("a missing library and a URL that cannot be read are told without the password", async () => {
  const missing = Object.assign(new Error("Cannot find package 'pg' imported from x"), {
    code: "ERR_MODULE_NOT_FOUND",
  });
  await expect(openPostgres(server.url, {}, () => Promise.reject(missing))).rejects.toThrow("npm install pg");
  await expect(openPostgres("postgres://u:secret@[bad/x")).rejects.not.toThrow(/secret/);
  await expect(openPostgres(`${server.url}?durable=maybe`)).rejects.toThrow(/neither true nor false/);
});

test("a single connection that ends: calls fail, and say why", async () => {
  const client = new Client({ connectionString: server.url });
  await client.connect();
  const engine = await postgresEngine(client);
  const pid = (await client.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")).rows[0]?.pid;
  await query(server.url, "SELECT pg_terminate_backend($1)", [pid]);
  await until("it fails", () =>
    engine.renew([{ name: "n", id: "i" }]).then(
      () => false,
      () => true,
    ),
  );
  await engine[Symbol.asyncDispose]();
});

type Stock = { id: number; left: number; version: number };

test("row locks: a row is locked until its transaction ends, and skipped or refused on request", async () => {
  await query(
    server.url,
    'CREATE TABLE public.stock (id int PRIMARY KEY, "left" int NOT NULL, version int NOT NULL DEFAULT 0)',
  );
  await query(server.url, "INSERT INTO public.stock VALUES (1, 100)");
  const pool = pooled(server.url, { max: 30 });
  const [one, two] = [await pool.connect(), await pool.connect()];
  const row = { table: "public.stock", key: { id: 1 } };
  await one.query("BEGIN");
  expect(await forUpdate<Stock>(one, row)).toEqual({ id: 1, left: 100, version: 0 });
  expect(await forUpdate(two, { ...row, busy: "skip" })).toBeNull();
  await expect(forUpdate(two, { ...row, busy: "nowait" })).rejects.toMatchObject({ code: "55P03" });
  await one.query("COMMIT");
  expect(await forUpdate(two, { ...row, key: { id: 2 } })).toBeNull();
  one.release();
  two.release();
});

test("optimistic: no sale is lost and none is made twice; conflicts and missing rows are values", async () => {
  const pool = pooled(server.url, { max: 30 });
  const row = { table: "public.stock", key: { id: 1 } };
  const buy = () =>
    optimistic<Stock>(pool, { ...row, attempts: 200 }, ({ left }) => (left > 0 ? { left: left - 1 } : null));
  const answers = await Promise.all(Array.from({ length: 120 }, buy));
  expect(answers.filter(({ kind }) => kind === "written")).toHaveLength(100);
  expect(answers.filter(({ kind }) => kind === "left")).toHaveLength(20);
  expect((await query(server.url, "SELECT * FROM public.stock"))[0]).toEqual({ id: 1, left: 0, version: 100 });
  expect(await optimistic(pool, { ...row, key: { id: 7 } }, () => null)).toEqual({ kind: "missing" });
  const beaten = await optimistic<Stock>(pool, { ...row, attempts: 2 }, async () => {
    await pool.query("UPDATE public.stock SET version = version + 1");
    return { left: 9 };
  });
  expect(beaten).toEqual({ kind: "conflict", attempts: 2 });
  await expect(optimistic(pool, { ...row, version: "none" }, () => null)).rejects.toThrow(/no column/);
});
