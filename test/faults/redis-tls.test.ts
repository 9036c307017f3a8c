import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Load } from "../../src/engine-kit/library.js";
import { openRedis } from "../../src/engines/redis/index.js";
import { selfSigned } from "../servers/certificate.js";
import { freePorts, until } from "../servers/process.js";
import { command, type RedisServer, startRedis, startSentinel } from "../servers/redis.js";

const { cert, key, issue, remove } = selfSigned();
let server: RedisServer;
let tlsPort = 0;

const tlsArgs = (port: number): string[] => [
  ...["--tls-port", String(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert],
  ...["--tls-auth-clients", "no"],
];

beforeAll(async () => {
  tlsPort = (await freePorts(1))[0] ?? 0;
  server = await startRedis([...tlsArgs(tlsPort), "--requirepass", "pass word/1"]);
}, 60_000);

afterAll(async () => {
  await server?.running.stop();
  remove();
});

const url = (password = "pass%20word%2F1"): string => `rediss://default:${password}@localhost:${tlsPort}/2`;

test("rediss:// speaks TLS, with user, password, database and a certificate of one's own", async () => {
  await using locks = await connect(url(), { tls: { ca: readFileSync(cert) }, prefix: "tls-test:" });
  const hold = await locks.mutex("m").acquire();
  expect(await locks.mutex("m").isHeld()).toBe(true);
  expect(await keysOf(2)).toContain("tls-test:lock:m");
  expect(await keysOf(0)).not.toContain("tls-test");
  await hold.release();
});

test("a certificate that nobody vouches for, and a wrong password, are refused without showing the password", async () => {
  const untrusted = await connect(url(), { callTimeoutMs: 5000 }).catch((error: unknown) => String(error));
  expect(untrusted).toMatch(/certificate|self.signed/i);
  const wrong = connect(url("wrong-secret"), { tls: { ca: readFileSync(cert) }, callTimeoutMs: 5000 });
  const refused = await wrong.catch((error: unknown) => String(error));
  expect(refused).toMatch(/WRONGPASS|NOAUTH|password/i);
  for (const said of [untrusted, refused]) expect(said).not.toMatch(/pass word|wrong-secret|pass%20word/);
});

/** As if ioredis were not installed. */
const nodeRedis: Load = (library) =>
  library === "redis"
    ? import("redis")
    : Promise.reject(Object.assign(new Error(`no '${library}'`), { code: "ERR_MODULE_NOT_FOUND" }));

describe.each([
  ["ioredis", undefined],
  ["node-redis", nodeRedis],
])("with %s", (_, load) => {
  async function lockedAt(target: string): Promise<void> {
    const engine = await openRedis(target, { tls: { ca: readFileSync(cert) } }, load);
    onTestFinished(() => engine[Symbol.asyncDispose]());
    await using locks = await connect(engine);
    await locks.mutex("m").using(() => {});
    expect(locks.guarantees.wake).toBe("push");
  }

  test("rediss+cluster:// speaks TLS to the nodes", { timeout: 60_000 }, async () => {
    const [port = 0, bus = 0] = await freePorts(2);
    const cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1"];
    const node = await startRedis([...tlsArgs(port), ...cluster, "--cluster-port", String(bus)]);
    onTestFinished(() => node.running.stop());
    await command(node.port, "CLUSTER ADDSLOTSRANGE 0 16383");
    await until("it serves", async () => (await command(node.port, "CLUSTER INFO")).includes("cluster_state:ok"));
    await lockedAt(`rediss+cluster://127.0.0.1:${port}`);
  });

  test("rediss+sentinel:// speaks TLS to the Sentinels and to the primary", { timeout: 60_000 }, async () => {
    const [port = 0, sentinelPort = 0] = await freePorts(2);
    const primary = await startRedis([...tlsArgs(port), "--tls-replication", "yes"]);
    onTestFinished(() => primary.running.stop());
    const sentinel = await startSentinel(`127.0.0.1 ${port}`, [...tlsArgs(sentinelPort), "--tls-replication", "yes"]);
    onTestFinished(() => sentinel.stop());
    await lockedAt(`rediss+sentinel://127.0.0.1:${sentinelPort}/main`);
  });
});

test.each([
  ["of another host", "elsewhere.example.com", undefined, /does not match/i],
  ["that has expired", "localhost", "expired", /expired/i],
] as const)("a certificate %s is refused without showing the password", async (_, host, expired, why) => {
  issue(host, expired);
  await onPlainPort(0, (client) => client.config("SET", "tls-cert-file", cert, "tls-key-file", key));
  const opening = connect(url(), { tls: { ca: readFileSync(cert) }, callTimeoutMs: 3000 });
  const refused = await opening.catch((error: unknown) => String(error));
  expect(refused).toMatch(why);
  expect(refused).not.toMatch(/pass word|pass%20word/);
});

/** Through the plain port: what is in a database. */
const keysOf = async (database: number): Promise<string> =>
  (await onPlainPort(database, (client) => client.keys("*"))).join(" ");

async function onPlainPort<T>(database: number, ask: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis({ port: server.port, password: "pass word/1", db: database });
  try {
    return await ask(client);
  } finally {
    client.disconnect();
  }
}
