import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { programsOf } from "../servers/packages.js";
import { freePorts } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-tls-"));
const [cert, key, both] = [join(folder, "cert.pem"), join(folder, "key.pem"), join(folder, "both.pem")];
let server: ZooKeeperServer;
let securePort = 0;

beforeAll(async () => {
  const { openssl = "" } = programsOf("OpenSSL");
  const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
  const made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", cert, ...names];
  execFileSync(openssl, made, { stdio: "ignore" });
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
  rmSync(folder, { recursive: true, force: true });
});

const url = (): string => `zookeeper+tls://user:pass%20word@localhost:${securePort}/tls`;

test("zookeeper+tls:// speaks TLS, with a user, a password and a certificate of one's own", async () => {
  await using locks = await connect(url(), { tls: { ca: readFileSync(cert) } });
  const hold = await locks.mutex("m").acquire();
  expect(await locks.mutex("m").isHeld()).toBe(true);
  await hold.release();
});

test("a certificate that nobody vouches for is refused, and no password shown", async () => {
  const untrusted = await connect(url(), { callTimeoutMs: 1000 }).catch((error: unknown) => String(error));
  expect(untrusted).toMatch(/certificate|self.signed/i);
  expect(untrusted).not.toMatch(/pass/);
});

test("a certificate that is none is an option's mistake, told before a server is asked", async () => {
  const wrong = connect(url(), { tls: { cert: "no certificate", key: "no key" } });
  await expect(wrong).rejects.toBeInstanceOf(InvalidOptionError);
});
