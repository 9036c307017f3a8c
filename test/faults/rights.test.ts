import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { migrationSql } from "../../src/engines/postgres/index.js";
import type { Locks } from "../../src/locks.js";
import { type EtcdCluster, etcdctl, type Member, startEtcd } from "../servers/etcd.js";
import * as maria from "../servers/mariadb.js";
import { programsOf } from "../servers/packages.js";
import * as postgres from "../servers/postgres.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";
import { startZooKeeper, type ZooKeeperServer, zkCli } from "../servers/zookeeper.js";
import { exercise } from "./rights-rig.js";

/** The files of docs/rights, applied as they are: they are enough for all that programs do, and no right in them is too much. */

const FOLDER = resolve(import.meta.dirname, "../../docs/rights");
const fileOf = (name: string): string => join(FOLDER, name);
const textOf = (name: string): string => readFileSync(fileOf(name), "utf8");

const rightsIn = (name: string): string[] => textOf(name).match(/(?<=\+)[a-z|]+/g) ?? [];

async function locksOn(url: string, options: ConnectOptions = {}): Promise<Locks> {
  const locks = await connect(url, options);
  onTestFinished(() => locks.close());
  return locks;
}

/** What the store said to whom it refused; null when nothing was refused. */
async function refusal(of: Promise<unknown>): Promise<string | null> {
  const error = await of.then(
    () => null,
    (thrown: unknown) => thrown as Error,
  );
  if (error === null) return null;
  expect(error).toBeInstanceOf(EngineRefusedError);
  expect(String(error)).not.toContain("change-me");
  return String(error);
}

test.each([
  ["redis.md", "redis.acl"],
  ["postgres.md", "postgres.sql"],
  ["mysql.md", "mysql.sql"],
  ["zookeeper.md", "zookeeper.txt"],
])("docs/engines/%s shows docs/rights/%s", (page, file) => {
  expect(readFileSync(join(FOLDER, "../engines", page), "utf8")).toContain(`\n${textOf(file)}\`\`\`\n`);
});

describe("Redis", () => {
  let server: RedisServer;
  beforeAll(async () => {
    const durable = ["--appendonly", "yes", "--appendfsync", "always"];
    server = await startRedis(["--aclfile", fileOf("redis.acl"), ...durable]);
  });
  afterAll(() => server.running.stop());
  const open = (database = 0): Promise<Locks> => locksOn(`redis://app:change-me@127.0.0.1:${server.port}/${database}`);

  async function without(right: string): Promise<void> {
    await command(server.port, `ACL SETUSER app -${right}`);
    await command(server.port, "SCRIPT FLUSH");
    onTestFinished(async () => void (await command(server.port, `ACL SETUSER app +${right}`)));
  }

  /** What is not refused without them, but less good. */
  const USEFUL = new Set(["subscribe", "unsubscribe", "info", "config|get", "select"]);
  const needed = rightsIn("redis.acl").filter((right) => !USEFUL.has(right));

  test("the rights are enough", async () => {
    const locks = await open();
    await exercise(locks, await open());
    expect(locks.guarantees).toMatchObject({ wake: "push", exclusion: "single-server", survivesRestart: true });
    await (await open(1)).mutex("another database").using(() => {});
    const said = await command(server.port, "ACL GETUSER app");
    expect(said, "not more than that").toMatch(/-@all/);
  });

  test.each(needed)("without +%s it is refused", async (right) => {
    // A lock that is held alone is kept in another way than one that others wait for.
    const alone = `alone, and then without ${right}`;
    await (await open()).mutex(alone).acquire();
    await without(right);
    const used = async (): Promise<void> => {
      const locks = await open();
      await exercise(locks, await open());
      await locks.mutex(alone).tryAcquire();
    };
    expect(await refusal(used())).toMatch(/the rights in docs\/rights\/redis.acl/);
  });

  test("other keys and channels are refused", async () => {
    const elsewhere = locksOn(`redis://app:change-me@127.0.0.1:${server.port}`, { prefix: "other:" });
    expect(await refusal(elsewhere)).toMatch(/docs\/rights\/redis.acl/);
  });

  test("without the others it is less good", async () => {
    for (const right of ["subscribe", "info", "config|get", "select"]) await without(right);
    const locks = await open();
    await locks.mutex("m").using(() => {});
    expect(locks.guarantees).toMatchObject({ wake: "poll", exclusion: "until-failover", survivesRestart: false });
    expect(await refusal(open(1))).toMatch(/NOPERM.*'select'/);
  });
});

/** Each right of a GRANT by itself. */
type Grant = { readonly right: string; readonly on: string };

const grantsIn = (file: string): Grant[] =>
  [...textOf(file).matchAll(/^GRANT (.+) ON (.+) TO app;$/gm)].flatMap(([, rights = "", objects = ""]) => {
    const [, kind = "", names = ""] = /^((?:SCHEMA |SEQUENCE |ALL FUNCTIONS IN SCHEMA )?)(.+)$/.exec(objects) ?? [];
    return names.split(", ").flatMap((name) => rights.split(", ").map((right) => ({ right, on: kind + name })));
  });

describe("PostgreSQL", () => {
  let server: postgres.PostgresServer;
  const run = (text: string) => postgres.query(server.url, text);
  beforeAll(async () => {
    server = await postgres.startPostgres();
    await run(migrationSql());
    await run(textOf("postgres.sql"));
  }, 120_000);
  afterAll(() => server.running.stop());
  const open = (options = {}): Promise<Locks> =>
    locksOn(`postgres://app:change-me@127.0.0.1:${server.port}/postgres`, options);

  test("the rights are enough, and with one less it is refused with the name of what is missing", async () => {
    const [one, two] = [await open(), await open({ migrate: false })];
    await exercise(one, two);
    expect(one.guarantees.wake).toBe("push");
    expect(await unneeded(grantsIn("postgres.sql"), run, () => exercise(one, two).then(() => open()))).toEqual([]);
    await exercise(one, two);
  }, 120_000);

  test("it cannot make the tables, and says so", async () => {
    expect(await refusal(open({ schema: "elsewhere" }))).toMatch(
      /permission denied for database.*docs\/rights\/postgres.sql/,
    );
  });
});

describe("MariaDB", () => {
  let server: maria.MariadbServer;
  const run = (text: string) => maria.query(server.url, text);
  beforeAll(async () => {
    server = await maria.startMariadb();
    // As its owner would: what migrationSql() gives is for the command line.
    await (await connect(server.url)).close();
    await run(textOf("mysql.sql"));
  }, 120_000);
  afterAll(() => server.running.stop());
  const open = (options = {}): Promise<Locks> => locksOn(`mysql://app:change-me@127.0.0.1:${server.port}`, options);

  test("the rights are enough, and with one less it is refused with the name of what is missing", async () => {
    const [one, two] = [await open(), await open({ migrate: false })];
    await exercise(one, two);
    expect(one.guarantees.wake).toBe("push");
    expect(await unneeded(grantsIn("mysql.sql"), run, () => exercise(one, two).then(() => open()))).toEqual([]);
    await exercise(one, two);
  }, 120_000);

  test("it cannot make the tables, and says so", async () => {
    expect(await refusal(open({ schema: "elsewhere" }))).toMatch(
      /denied to user 'app'.*elsewhere.*docs\/rights\/mysql.sql/,
    );
  });
});

/** Those grants without which nothing is refused, or without saying what is missing. */
async function unneeded(
  grants: readonly Grant[],
  run: (text: string) => Promise<unknown>,
  use: () => Promise<unknown>,
): Promise<string[]> {
  expect(grants.length).toBeGreaterThan(20);
  const wrong: string[] = [];
  for (const { right, on } of grants) {
    await run(`REVOKE ${right} ON ${on} FROM app`);
    const said = await refusal(use());
    // PostgreSQL names the function, MariaDB the procedure, where all of them were granted at once.
    const object = right === "EXECUTE" ? /function|routine/ : new RegExp(`\\b${/\w+$/.exec(on)?.[0]}\\b`);
    if (said === null || !object.test(said)) wrong.push(`${right} ON ${on}: ${said}`);
    await run(`GRANT ${right} ON ${on} TO app`);
  }
  return wrong;
}

describe("etcd", () => {
  let cluster: EtcdCluster;
  let member: Member;
  const ctl = (...args: readonly string[]) => etcdctl(member, "--user", "root:root", ...args);
  beforeAll(async () => {
    cluster = await startEtcd();
    [member] = cluster.members as [Member];
    await etcdctl(member, "user", "add", "root:root");
    await etcdctl(member, "user", "grant-role", "root", "root");
    await etcdctl(member, "auth", "enable");
    const folder = dirname(programsOf("etcd").etcdctl ?? "");
    const settings = { ETCDCTL_ENDPOINTS: `127.0.0.1:${member.port}`, ETCDCTL_USER: "root:root" };
    const env = { ...process.env, PATH: `${folder}:${process.env.PATH}`, ...settings, HOLDFAST_PASSWORD: "change-me" };
    await promisify(execFile)("sh", [fileOf("etcd.sh")], { env });
  }, 60_000);
  afterAll(() => cluster?.stop());
  const open = (options = {}): Promise<Locks> => locksOn(`etcd://app:change-me@127.0.0.1:${member.port}`, options);

  test("the rights are enough, and another prefix is refused with what to grant", async () => {
    await exercise(await open(), await open());
    expect(await refusal(open({ prefix: "other/" }))).toMatch(/permission denied.*readwrite.*docs\/rights\/etcd.sh/);
  }, 60_000);

  test.each(["read", "write"])("a role that may only %s is refused", async (right) => {
    await ctl("role", "grant-permission", "holdfast", right, "holdfast/", "--prefix");
    onTestFinished(
      async () => void (await ctl("role", "grant-permission", "holdfast", "readwrite", "holdfast/", "--prefix")),
    );
    expect(await refusal(open())).toMatch(/permission denied.*readwrite.*docs\/rights\/etcd.sh/);
  });
});

describe("ZooKeeper", () => {
  let server: ZooKeeperServer;
  beforeAll(async () => {
    server = await startZooKeeper();
    const said = await zkCli(server.port, fileOf("zookeeper.txt"));
    expect(said).not.toMatch(/invalid|exception/i);
  }, 60_000);
  afterAll(() => server?.running.stop());
  const open = (user = "app:change-me", options: ConnectOptions = {}): Promise<Locks> =>
    locksOn(`zookeeper://${user}@127.0.0.1:${server.port}/holdfast`, options);

  test("the rights are enough; others, and other places, are refused with what to grant", async () => {
    await exercise(await open(), await open());
    expect(await refusal(open("stranger:word"))).toMatch(/no auth.*docs\/rights\/zookeeper.txt/);
  }, 60_000);
});
