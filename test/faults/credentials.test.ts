import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import { EngineRefusedError, EngineUnavailableError, InvalidOptionError } from "../../src/core/errors.js";
import type { CredentialsFunction } from "../../src/engine-kit/credentials.js";
import type { Locks } from "../../src/locks.js";
import { type EtcdCluster, etcdctl, type Member, startEtcd } from "../servers/etcd.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { command, startRedis } from "../servers/redis.js";

/** Passwords that a function gives: asked at each new connection, so that they may change while a program holds locks. */

/** A server with the user `app`, whose password can be changed and whose connections can be cut. */
type Store = {
  readonly url: string;
  change(password: string): Promise<unknown>;
  cut(): Promise<unknown>;
  stop(): Promise<unknown>;
};

async function redisStore(): Promise<Store> {
  const server = await startRedis();
  return {
    url: `redis://app@127.0.0.1:${server.port}`,
    change: (password) => command(server.port, `ACL SETUSER app on resetpass >${password} ~* &* +@all`),
    cut: () => command(server.port, "CLIENT KILL USER app"),
    stop: () => server.running.stop(),
  };
}

async function postgresStore(): Promise<Store> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-hba-"));
  chmodSync(folder, 0o755);
  const file = join(folder, "pg_hba.conf");
  writeFileSync(file, "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
  const server = await postgres.startPostgres(["-c", `hba_file=${file}`]);
  const run = (text: string) => postgres.query(server.url, text);
  await run("CREATE ROLE app LOGIN SUPERUSER");
  return {
    url: `postgres://127.0.0.1:${server.port}/postgres`,
    change: (password) => run(`ALTER ROLE app PASSWORD '${password}'`),
    cut: () => run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'"),
    stop: async () => {
      await server.running.stop();
      rmSync(folder, { recursive: true });
    },
  };
}

async function mysqlStore(): Promise<Store> {
  const server = await maria.startMariadb();
  const run = (text: string) => maria.query(server.url, text);
  await run("CREATE USER app; GRANT ALL ON holdfast.* TO app");
  return {
    url: `mysql://127.0.0.1:${server.port}`,
    change: (password) => run(`SET PASSWORD FOR app = PASSWORD('${password}')`),
    cut: () => run("KILL USER app"),
    stop: () => server.running.stop(),
  };
}

async function etcdStore(): Promise<Store> {
  const cluster: EtcdCluster = await startEtcd();
  const [member] = cluster.members as [Member];
  const proxy = await Proxy.to(member.port);
  const ctl = (...args: readonly string[]) => etcdctl(member, "--user", "root:root", ...args);
  await etcdctl(member, "user", "add", "root:root");
  await etcdctl(member, "user", "grant-role", "root", "root");
  await etcdctl(member, "role", "add", "locks");
  await etcdctl(member, "role", "grant-permission", "locks", "readwrite", "holdfast/", "--prefix");
  await etcdctl(member, "auth", "enable");
  let known = false;
  return {
    url: `etcd://127.0.0.1:${proxy.port}`,
    async change(password) {
      if (known) await ctl("user", "delete", "app");
      known = true;
      await ctl("user", "add", `app:${password}`);
      await ctl("user", "grant-role", "app", "locks");
    },
    async cut() {
      proxy.cut();
      proxy.heal();
    },
    async stop() {
      await proxy.close();
      await cluster.stop();
    },
  };
}

const FIRST = "first-opensesame";
const SECOND = "second-opensesame";

async function opened(url: string, credentials: CredentialsFunction, options: ConnectOptions = {}): Promise<Locks> {
  const locks = await connect(url, { credentials, ...options });
  onTestFinished(() => locks.close());
  return locks;
}

/** What opening fails with, which shows no password. */
async function failure(url: string, credentials: CredentialsFunction): Promise<unknown> {
  const error = await opened(url, credentials, { callTimeoutMs: 2000 }).catch((thrown: unknown) => thrown);
  const shown = `${String(error)} ${JSON.stringify(error)} ${String((error as Error).cause)}`;
  expect(shown).not.toContain("opensesame");
  return error;
}

describe.each([
  ["Redis, with node-redis", redisStore],
  ["PostgreSQL", postgresStore],
  ["MariaDB", mysqlStore],
  ["etcd", etcdStore],
])("%s", (_, start) => {
  let store: Store;
  beforeAll(async () => {
    store = await start();
  }, 120_000);
  afterAll(() => store?.stop());

  test("a password that changes: connections that are cut are made anew with the new one, and holds go on", async () => {
    await store.change(FIRST);
    let [password, asked] = [FIRST, 0];
    const locks = await opened(store.url, async () => ((asked += 1), { username: "app", password }), {
      leaseMs: 20_000,
    });
    const told: string[] = [];
    for (const type of ["warning", "unavailable"] as const) locks.on(type, (event) => told.push(JSON.stringify(event)));
    const hold = await locks.mutex("kept").acquire();
    const before = asked;
    expect(before).toBeGreaterThan(0);
    await store.change(SECOND);
    password = SECOND;
    await store.cut();
    await until("another lock is given, over a new connection", () =>
      locks
        .mutex("other")
        .using(() => asked > before)
        .catch(() => false),
    );
    const [renewed] = await locks.client.engine.renew([{ name: "kept", id: hold.id }]);
    expect(renewed?.kind).toBe("granted");
    hold.throwIfLost();
    await hold.release();
    expect(told.join()).not.toContain("opensesame");
  }, 60_000);

  test("a password that is wrong is refused, and not shown", async () => {
    const error = await failure(store.url, () => ({ username: "app", password: FIRST }));
    expect(error).toBeInstanceOf(EngineRefusedError);
  });

  test("a function that throws, hangs or answers with nonsense is told, and the program goes on", async () => {
    const throws = await failure(store.url, () => Promise.reject(new Error("the vault is sealed")));
    expect(throws).toBeInstanceOf(EngineUnavailableError);
    expect(String(throws)).toContain("the function credentials failed: the vault is sealed");
    const hangs = await failure(store.url, () => new Promise(() => {}));
    expect(hangs).toBeInstanceOf(EngineUnavailableError);
    expect(String(hangs)).toContain("the function credentials gave no answer within 1000 ms");
    const nonsense = await failure(store.url, (() => "opensesame") as never);
    expect(nonsense).toBeInstanceOf(EngineRefusedError);
    expect(String(nonsense)).toContain("Let the function credentials answer with { username, password }");
  });
});

test("what cannot ask is refused: another thread, ZooKeeper, a URL with a password", async () => {
  const server = await startRedis(["--requirepass", "opensesame"]);
  onTestFinished(() => server.running.stop());
  const credentials = (): { password: string } => ({ password: "opensesame" });
  const inWorker = connect(server.url, { credentials, renewIn: "worker" });
  await expect(inWorker).rejects.toThrow(/"renewIn": credentials cannot be sent to another thread/);
  const zookeeper = connect("zookeeper://127.0.0.1:1", { credentials } as never);
  await expect(zookeeper).rejects.toThrow(InvalidOptionError);
  for (const scheme of ["redis", "postgres", "mysql", "etcd"]) {
    const both = connect(`${scheme}://app:opensesame@127.0.0.1:1`, { credentials });
    await expect(both).rejects.toThrow(/the URL has a password too/);
  }
});
