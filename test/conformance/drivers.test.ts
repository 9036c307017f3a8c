import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { InvalidOptionError, UnsupportedError } from "../../src/core/errors.js";
import { type MariadbPool, mysqlEngine } from "../../src/engines/mysql/index.js";
import { type PgPool, postgresEngine } from "../../src/engines/postgres/index.js";
import { type GlideClient, redisEngine } from "../../src/engines/redis/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { SOME_FAULTS } from "../../src/testing/faults.js";
import { stressTest } from "../../src/testing/stress-test.js";
import { claimOf, inSomeTries } from "../faults/rig.js";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { startRedis } from "../servers/redis.js";
import { folderOf, toolModule } from "../servers/tools.js";

type Options = Readonly<Record<string, unknown>>;
type Sql = { unsafe(text: string): Promise<unknown> & { cancel(): Promise<unknown> } } & {
  end(options: { timeout: number }): Promise<void>;
};

type Libraries = {
  readonly mariadb: {
    createPool(options: Options): MariadbPool & {
      end(): Promise<void>;
      query(sql: string): Promise<Record<string, unknown>[]>;
      on(event: "connection", listener: () => void): void;
    };
  };
  readonly mariadbCallback: { createPool(options: Options): MariadbPool & { end(): void } };
  readonly glide: Record<
    "GlideClient" | "GlideClusterClient",
    { createClient(options: Options): Promise<GlideClient>; readonly prototype: object }
  >;
  readonly NeonPool: new (
    options: Options,
  ) => PgPool & { end(): Promise<void>; on(event: "error", listener: () => void): void };
  readonly neon: (url: string) => object;
  readonly postgres: (url: string, options?: Options) => Sql;
  readonly startWebSocketProxy: () => Promise<{ stop(): Promise<void> }>;
};

const { mariadb, mariadbCallback, glide, NeonPool, neon, postgres, startWebSocketProxy } = (await toolModule(
  "drivers",
  "libraries.mjs",
)) as Libraries;

const WHOLE = process.env.HOLDFAST_LONG === "1";
const timeout = 120_000;

/** For the tests that run side by side, and those after them. */
let [mariadbPort, redisPort, postgresUrl, postgresPort] = [0, 0, "", 0];
let mariadbPool: ReturnType<Libraries["mariadb"]["createPool"]>;
let glideClient: GlideClient;
let neonPool: InstanceType<typeof NeonPool>;
const closers: (() => Promise<unknown> | void)[] = [];

beforeAll(async () => {
  const servers = [startMariadb(), startRedis(), startPostgres(), startWebSocketProxy()] as const;
  const [mysqlServer, redisServer, postgresServer, proxy] = await Promise.all(servers);
  [mariadbPort, redisPort, postgresPort] = [mysqlServer.port, redisServer.port, postgresServer.port];
  postgresUrl = postgresServer.url;
  mariadbPool = mariadbPoolOf({ port: mariadbPort, connectionLimit: 100 });
  glideClient = await glide.GlideClient.createClient(addresses());
  neonPool = new NeonPool({ connectionString: postgresUrl, max: 8 });
  neonPool.on("error", () => {});
  closers.push(
    () => mariadbPool.end(),
    () => glideClient.close(),
    () => neonPool.end(),
    () => proxy.stop(),
    ...[mysqlServer, redisServer, postgresServer].map((server) => () => server.running.stop()),
  );
}, timeout);
afterAll(async () => {
  for (const close of closers) await close();
}, timeout);

/**
 * Without idle connections that it opens by itself: once a connection that closed rejected a promise inside of the library (mariadb 3.5)
 * that nobody could handle, most likely one that was being opened when its pool ended.
 */
const mariadbPoolOf = (options: Options): typeof mariadbPool =>
  mariadb.createPool({ host: "127.0.0.1", user: "root", minimumIdle: 1, ...options });

const addresses = (): Options => ({ addresses: [{ host: "127.0.0.1", port: redisPort }], requestTimeout: 5000 });

const DRIVERS: Readonly<Record<string, () => Promise<Engine>>> = {
  "mysql by mariadb": () => mysqlEngine(mariadbPool),
  "redis by Valkey GLIDE": () => redisEngine(glideClient),
  "postgres by a Pool of @neondatabase/serverless": () => postgresEngine(neonPool),
};

// Of each driver the comparison with the reference and several clients at once; with HOLDFAST_LONG=1 the whole suite.
if (WHOLE) {
  describe.each(Object.entries(DRIVERS))("%s", (_, engine) => {
    conformance((title, run) => test.concurrent(title, run, timeout), { engine, leaseStepMs: 1000 });
  });
}

test.concurrent.each(Object.keys(DRIVERS))(
  "%s: random operations are answered as by the reference",
  { timeout },
  (name) =>
    // Leases either last the whole run or are waited for: they may be short.
    compareWithReference({
      engine: DRIVERS[name] as () => Promise<Engine>,
      leaseStepMs: 300,
      runs: WHOLE ? 14 : 4,
      withinMs: timeout * 0.8,
    }),
);

test.concurrent.each(Object.keys(DRIVERS))(
  "%s: several clients at once break no rule on unreliable connections",
  {
    timeout,
  },
  async (name) => {
    const engine = DRIVERS[name] as () => Promise<Engine>;
    const options = { engine, leaseStepMs: 1000, clients: 3, rounds: 2, lateMs: 1000, faults: SOME_FAULTS };
    const { violations, history } = await stressTest(options);
    expect(violations).toEqual([]);
    expect(history.holds.length).toBeGreaterThan(2);
  },
);

test.concurrent.each(Object.keys(DRIVERS))("%s: it pushes, and is disposed", { timeout }, async (name) => {
  const one = await (DRIVERS[name] as () => Promise<Engine>)();
  expect(one.guarantees).toMatchObject({ order: "fifo", wake: "push" });
  await one[Symbol.asyncDispose]();
});

async function proxyTo(port: number): Promise<Proxy> {
  const proxy = await Proxy.to(port);
  onTestFinished(() => proxy.close());
  return proxy;
}

test("pools and clients of these libraries are taken as their own types describe them", { timeout }, async () => {
  const tsc = resolve(import.meta.dirname, "../../node_modules/typescript/bin/tsc");
  const compiled = promisify(execFile)(process.execPath, [tsc, "-p", folderOf("drivers")]);
  const { stdout } = await compiled.catch(({ stdout, message }: Error & { stdout: string }) => ({
    stdout: `${stdout}${message}`,
  }));
  expect(stdout).toBe("");
});

describe("mariadb", () => {
  test("connections that go silent leave the pool, and few new ones are made", async () => {
    const proxy = await proxyTo(mariadbPort);
    const pool = mariadbPoolOf({ port: proxy.port, connectionLimit: 5 });
    let made = 0;
    pool.on("connection", () => (made += 1));
    const engine = await inSomeTries(() => mysqlEngine(pool, { callTimeoutMs: 400 }));
    for (const name of ["one", "two"]) {
      expect(proxy.silence()).toBeGreaterThan(0);
      const claim = claimOf(name);
      const granted = engine.claim(claim).then(({ kind }) => kind === "granted");
      const answered = (): Promise<boolean> =>
        granted.catch(() =>
          engine.claim(claim).then(
            () => true,
            () => false,
          ),
        );
      await until("it is answered again", answered);
      expect(await engine.release(claim)).toBe("released");
    }
    expect(made).toBeLessThan(40);
    await engine[Symbol.asyncDispose]();
    await pool.end();
  });

  test("pitfall 53: one that is given up ends alone: nothing is killed by the id that it had", async () => {
    const server = await startMariadb();
    onTestFinished(() => server.running.stop());
    const proxy = await proxyTo(server.port);
    const admin = mariadbPoolOf({ port: server.port, connectionLimit: 1 });
    const pool = mariadbPoolOf({ port: proxy.port, connectionLimit: 5 });
    // Who polls sends no KILL, and uses the one connection that the pool has.
    const engine = await inSomeTries(() => mysqlEngine(pool, { callTimeoutMs: 1000, wake: "poll" }));
    const [used] = await admin.query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()");
    expect(proxy.silence()).toBe(1);
    // The server gives its id to nobody else while it runs; a restarted one begins anew.
    await admin.query(`KILL ${String(used?.["id"])}`);
    const count = async (name: string) =>
      Number((await admin.query(`SHOW GLOBAL STATUS LIKE '${name}'`))[0]?.["Value"]);
    const before = { kills: await count("Com_kill"), connections: await count("Connections") };
    await expect(engine.claim(claimOf("given up"))).rejects.toThrow("no answer within 1000 ms");
    expect((await engine.claim(claimOf("made anew"))).kind).toBe("granted");
    const after = { kills: await count("Com_kill"), connections: await count("Connections") };
    expect(after).toEqual({ ...before, connections: before.connections + 1 });
    await engine[Symbol.asyncDispose]();
    await Promise.all([pool.end(), admin.end()]);
  });

  test("names mean the same whatever sql_mode and options the pool has", async () => {
    const odd = mariadbPoolOf({
      ...{ port: mariadbPort, connectionLimit: 5 },
      ...{ sessionVariables: { sql_mode: "NO_BACKSLASH_ESCAPES,ANSI_QUOTES" } },
      ...{ rowsAsArray: true, nestTables: true, metaAsArray: true, bigNumberStrings: true, namedPlaceholders: true },
    });
    onTestFinished(() => odd.end());
    const engine = await mysqlEngine(odd);
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const claim = claimOf("it's \\' ? :x \"_\"");
    expect((await engine.claim(claim)).kind).toBe("granted");
    const other = await mysqlEngine(mariadbPool);
    onTestFinished(() => other[Symbol.asyncDispose]());
    expect((await other.claim(claimOf(claim.name))).kind).toBe("queued");
    expect(await engine.release(claim)).toBe("released");
  });

  test("an error carries neither the statement nor its values", async () => {
    const missing = mysqlEngine(mariadbPool, { schema: "nowhere_secret", migrate: false });
    await expect(missing).rejects.toThrow(/lock table|migrate/);
    await expect(missing).rejects.not.toThrow(/SELECT/);
  });

  test("a pool of mariadb/callback is refused", async () => {
    const other = mariadbCallback.createPool({ host: "127.0.0.1", port: mariadbPort, user: "root" });
    onTestFinished(() => other.end());
    await expect(mysqlEngine(other)).rejects.toThrow(/not of "mariadb\/callback"/);
    await expect(mysqlEngine({} as never)).rejects.toBeInstanceOf(InvalidOptionError);
  });
});

describe("Valkey GLIDE", () => {
  test("a connection for pushes that the library replaced unseen is noticed, and whoever waits asks", async () => {
    const engine = await inSomeTries(() => redisEngine(glideClient, { callTimeoutMs: 1000 }));
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const kinds: string[] = [];
    engine.listen(({ kind }) => kinds.push(kind));
    const [holder, waiter] = [claimOf("glide cut"), claimOf("glide cut")];
    await engine.claim(holder);
    await engine.claim(waiter);
    const list = String(await glideClient.customCommand(["client", "list", "type", "pubsub"]));
    for (const [, id = ""] of list.matchAll(/^id=(\d+)/gm))
      await glideClient.customCommand(["client", "kill", "id", id]);
    await until("the loss and the new connection are told", () => kinds.filter((kind) => kind === "wake").length >= 2);
    await engine.release(holder);
    await until("it pushes again", () => kinds.includes("granted"));
    await engine.release(waiter);
  });

  test("what does not fit is refused with what to do", async () => {
    await expect(redisEngine(glideClient, { ack: 1 })).rejects.toThrow(/WAIT.*use a client of ioredis/);
    const replicas = await glide.GlideClient.createClient({ ...addresses(), readFrom: "preferReplica" });
    onTestFinished(() => replicas.close());
    await expect(redisEngine(replicas)).rejects.toThrow(/readFrom/);
    const cluster = Object.create(glide.GlideClusterClient.prototype) as GlideClient;
    await expect(redisEngine(cluster)).rejects.toBeInstanceOf(UnsupportedError);
  });
});

describe("clients of PostgreSQL that do not fit", () => {
  test("postgres.js does not give up a silent connection, and is refused with what to do", async () => {
    const proxy = await proxyTo(postgresPort);
    const sql = postgres(`postgres://postgres@127.0.0.1:${proxy.port}/postgres`, { max: 1 });
    onTestFinished(async () => {
      await sql.end({ timeout: 0 });
    });
    await sql.unsafe("SELECT 1");
    proxy.stall();
    const [first, second] = [sql.unsafe("SELECT 1"), sql.unsafe("SELECT 2")];
    let answered = 0;
    for (const query of [first, second])
      query.then(
        () => (answered += 1),
        () => (answered += 1),
      );
    // Neither goes to a new connection.
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(answered).toBe(0);
    await expect(postgresEngine(sql as never)).rejects.toThrow(/postgres\.js cannot give up .* Give a Pool of pg/);
  });

  test("a query over HTTP, and anything else, is refused with what to do", async () => {
    await expect(postgresEngine(neon(postgresUrl) as never)).rejects.toThrow(/over HTTP.*WebSockets/);
    await expect(postgresEngine({} as never)).rejects.toBeInstanceOf(InvalidOptionError);
  });
});
