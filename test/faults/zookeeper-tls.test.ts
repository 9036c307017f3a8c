import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect as connectSocket } from "node:net";
import { createServer } from "node:tls";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { selfSigned } from "../servers/certificate.js";
import { freePorts } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";

const { cert, key, issue, remove } = selfSigned();
const both = `${cert}.both.pem`;
let server: ZooKeeperServer;
let securePort = 0;

beforeAll(async () => {
  writeFileSync(both, readFileSync(key, "utf8") + readFileSync(cert, "utf8"));
  securePort = (await freePorts(1))[0] ?? 0;
  server = await startZooKeeper({
    securePort,
    properties: { "zookeeper.serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory" },
    lines: [
      `ssl.keyStore.location=${both}`,
      "ssl.keyStore.type=PEM",
      `ssl.trustStore.location=${cert}`,
      "ssl.trustStore.type=PEM",
      "ssl.clientAuth=none",
    ],
  });
}, 60_000);

afterAll(async () => {
  await server?.running.stop();
  remove();
});

const url = (): string => `zookeeper+tls://user:pass%20word@localhost:${securePort}/tls`;

test("zookeeper+tls:// speaks TLS, with a user, a password and a certificate of one's own", async () => {
  await using locks = await connect(url(), { tls: { ca: readFileSync(cert) } });
  const hold = await locks.mutex("m").acquire();
  expect(await locks.mutex("m").isHeld()).toBe(true);
  await hold.release();
});

test("a server behind a router is asked for by its name, which an address is none", async () => {
  const asked: (string | false | null)[] = [];
  const router = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (socket) => {
    asked.push(socket.servername);
    socket.on("error", () => {});
    socket.destroy();
  });
  await new Promise<void>((resolve) => router.listen(0, resolve));
  onTestFinished(() => void router.close());
  const { port } = router.address() as AddressInfo;
  for (const host of ["localhost", "127.0.0.1"]) {
    const options = { tls: { ca: readFileSync(cert) }, callTimeoutMs: 2000 };
    await expect(connect(`zookeeper+tls://${host}:${port}`, options)).rejects.toThrow();
  }
  expect([...new Set(asked)]).toEqual(["localhost", false]);
});

test("a certificate that nobody vouches for is refused, and no password shown", async () => {
  const untrusted = await connect(url(), { callTimeoutMs: 5000 }).catch((error: unknown) => String(error));
  expect(untrusted).toMatch(/certificate|self.signed/i);
  expect(untrusted).not.toMatch(/pass/);
});

test("a certificate that is none is an option's mistake, told before a server is asked", async () => {
  const wrong = connect(url(), { tls: { cert: "no certificate", key: "no key" } });
  await expect(wrong).rejects.toBeInstanceOf(InvalidOptionError);
});

test.each([
  ["of another host", "elsewhere.example.com", undefined, /does not match/i],
  ["that has expired", "localhost", "expired", /expired/i],
] as const)("a certificate %s is refused, and no password shown", async (_, host, expired, why) => {
  issue(host, expired);
  // ZooKeeper reads its own when it starts: something that shows another stands before it.
  const front = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (socket) => {
    socket.on("error", () => {});
    socket.pipe(connectSocket(server.port, "127.0.0.1")).pipe(socket);
  });
  await new Promise<void>((resolve) => front.listen(0, resolve));
  onTestFinished(() => void front.close());
  const { port } = front.address() as AddressInfo;
  const behind = url().replace(String(securePort), String(port));
  const options = { tls: { ca: readFileSync(cert) }, callTimeoutMs: 5000 };
  const refused = await connect(behind, options).catch((error: unknown) => String(error));
  expect(refused).toMatch(why);
  expect(refused).not.toMatch(/pass/);
});
