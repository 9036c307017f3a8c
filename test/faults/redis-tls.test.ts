import { readFileSync } from "node:fs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { selfSigned } from "../servers/certificate.js";
import { freePorts } from "../servers/process.js";
import { type RedisServer, startRedis } from "../servers/redis.js";

const { cert, key, remove } = selfSigned();
let server: RedisServer;
let tlsPort = 0;

beforeAll(async () => {
  tlsPort = (await freePorts(1))[0] ?? 0;
  const tls = [
    "--tls-port",
    String(tlsPort),
    "--tls-cert-file",
    cert,
    "--tls-key-file",
    key,
    "--tls-ca-cert-file",
    cert,
  ];
  server = await startRedis([...tls, "--tls-auth-clients", "no", "--requirepass", "pass word/1"]);
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
  const untrusted = await connect(url(), { callTimeoutMs: 1000 }).catch((error: unknown) => String(error));
  expect(untrusted).toMatch(/certificate|self.signed/i);
  const wrong = connect(url("wrong-secret"), { tls: { ca: readFileSync(cert) }, callTimeoutMs: 1000 });
  const refused = await wrong.catch((error: unknown) => String(error));
  expect(refused).toMatch(/WRONGPASS|NOAUTH|password/i);
  for (const said of [untrusted, refused]) expect(said).not.toMatch(/pass word|wrong-secret|pass%20word/);
});

/** Through the plain port: what is in a database. */
async function keysOf(database: number): Promise<string> {
  const { Redis } = await import("ioredis");
  const client = new Redis({ port: server.port, password: "pass word/1", db: database });
  try {
    return (await client.keys("*")).join(" ");
  } finally {
    client.disconnect();
  }
}
