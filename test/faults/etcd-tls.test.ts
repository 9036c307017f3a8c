import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { selfSigned } from "../servers/certificate.js";
import { type EtcdCluster, etcdctl, startEtcd } from "../servers/etcd.js";

const { cert, key, issue, remove } = selfSigned();
let cluster: EtcdCluster;
let port = 0;

beforeAll(async () => {
  // Tokens that run out while the test looks on: they last as long as they are used, and two seconds more.
  cluster = await startEtcd(1, ["--auth-token-ttl", "2"], { ca: cert, cert, key });
  port = cluster.members[0]?.port ?? 0;
  const ctl = (...args: string[]) => etcdctl({ port }, "--cacert", cert, ...args);
  await ctl("user", "add", "root:root");
  await ctl("user", "add", "app:pass word/1");
  await ctl("role", "add", "locks");
  await ctl("role", "grant-permission", "locks", "readwrite", "holdfast/", "--prefix");
  await ctl("user", "grant-role", "app", "locks");
  await ctl("user", "grant-role", "root", "root");
  await ctl("auth", "enable");
}, 60_000);

afterAll(async () => {
  await cluster?.stop();
  remove();
});

const url = (password = "pass%20word%2F1"): string => `etcds://app:${password}@localhost:${port}`;
const tls = (): { ca: Buffer } => ({ ca: readFileSync(cert) });

test("etcds:// speaks TLS, with user, password and a certificate of one's own; a spent token is renewed", async () => {
  await using locks = await connect(url(), { tls: tls() });
  const hold = await locks.mutex("m").acquire({ leaseMs: 60_000 });
  expect(await locks.mutex("m").isHeld()).toBe(true);
  await sleep(6000);
  expect(await locks.mutex("m").isHeld()).toBe(true);
  await hold.release();
}, 30_000);

test("waiters are woken through TLS, also after their stream's token was spent", async () => {
  await using one = await connect(url(), { tls: tls() });
  await using two = await connect(url(), { tls: tls(), leaseMs: 60_000 });
  const hold = await one.mutex("w").acquire();
  const next = two.mutex("w").acquire();
  await sleep(5000);
  await hold.release();
  await (await next).release();
}, 30_000);

/** What opening fails with. */
const said = async (target: string, options: object): Promise<string> =>
  connect(target, { callTimeoutMs: 3000, ...options }).then(
    () => "connected",
    (error: unknown) => `${String(error)} ${String((error as Error).cause)}`,
  );

test("what is wrong is refused without showing the password", async () => {
  const untrusted = await said(url(), {});
  const wrong = await said(url("wrong-secret"), { tls: tls() });
  const nobody = await said(`etcds://localhost:${port}`, { tls: tls() });
  expect(untrusted).toMatch(/did not answer.*(certificate|self.signed|no connection|no answer)/is);
  expect(wrong).toMatch(/refused.*Check the user and the password/s);
  expect(nobody).toMatch(/refused.*Give a user and a password/s);
  const elsewhere = await said(url(), { tls: tls(), prefix: "elsewhere/" });
  expect(elsewhere).toMatch(/refused.*readwrite/s);
  for (const text of [untrusted, wrong, nobody]) expect(text).not.toMatch(/pass word|wrong-secret|pass%20word/);
}, 30_000);

test.each([
  ["of another host", "elsewhere.example.com", undefined, /does not match/i],
  ["that has expired", "localhost", "expired", /expired/i],
] as const)("a certificate %s is refused without showing the password", async (_, host, expired, why) => {
  // etcd reads the files for each connection.
  issue(host, expired);
  const refused = await said(url(), { tls: tls() });
  expect(refused).toMatch(why);
  expect(refused).not.toMatch(/pass word|pass%20word/);
});
