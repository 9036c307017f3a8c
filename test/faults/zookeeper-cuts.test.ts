import { readFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { createServer as createTlsServer } from "node:tls";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { SystemChance, SystemClock } from "../../src/core/clock.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
import { selfSigned } from "../servers/certificate.js";
import { pause, until } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";

/** Connections that end at every step of a session's life: whatever is lost, no error escapes the client. */

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper()), 60_000);
afterAll(() => server?.running.stop());

const escaped: unknown[] = [];
const note = (error: unknown): void => void escaped.push(error);
beforeEach(() => {
  escaped.length = 0;
  process.on("uncaughtException", note);
  process.on("unhandledRejection", note);
});
afterEach(() => {
  process.off("uncaughtException", note);
  process.off("unhandledRejection", note);
});

type Cut = "end" | "reset";

/** Each connection ends when so many bytes have come back from the server. */
async function cutting(to: number, afterBytes: number, how: Cut): Promise<{ port: number; cuts: () => number }> {
  const sockets = new Set<Socket>();
  let cuts = 0;
  const proxy = createServer((near) => {
    const far = connect(to, "127.0.0.1");
    let left = afterBytes;
    const cut = (): void => {
      cuts += 1;
      if (how === "reset") near.resetAndDestroy();
      else near.destroy();
      far.destroy();
    };
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
    }
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => {
      const part = data.subarray(0, left);
      left -= part.length;
      if (left > 0) near.write(part);
      else near.write(part, cut);
    });
    if (left === 0) cut();
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  return { port: (proxy.address() as { port: number }).port, cuts: () => cuts };
}

/** Takes part in a session until it was cut, with a call of every kind under way. */
async function live(port: number, cuts: () => number, tls?: { ca: string }): Promise<void> {
  const client = new WireClient({
    hosts: [{ host: "127.0.0.1", port }],
    sessionTimeoutMs: 4000,
    tls: tls === undefined ? undefined : { ...tls, servername: "localhost" },
    auth: { scheme: "digest", secret: "user:word" },
    acl: [{ perms: 31, scheme: "world", id: "anyone" }],
    clock: new SystemClock(),
    chance: new SystemChance(),
  });
  const nothing = (): void => {};
  const busy = (): void => {
    client.create("/cut-", Buffer.alloc(10), "ephemeral-sequential").catch(nothing);
    client.exists("/cut", nothing).catch(nothing);
    client.children("/", nothing).catch(nothing);
    client.confirm(["/zookeeper"]).catch(nothing);
  };
  client.start(({ kind }) => kind === "connected" && busy()).catch(nothing);
  // Also where the first answers do not come to so many bytes.
  const more = setInterval(busy, 100);
  await until("it was cut", () => cuts() > 1).finally(() => clearInterval(more));
  await client.close();
}

// A session's start, its answers and its first events come to some 700 bytes.
const STEPS = [...Array.from({ length: 60 }, (_, n) => n), ...Array.from({ length: 20 }, (_, n) => 60 + n * 33)];

for (const how of ["end", "reset"] as const) {
  test(`a connection that ends (${how}) after every number of bytes throws nothing`, { timeout: 60_000 }, async () => {
    for (const some of [STEPS.slice(0, 40), STEPS.slice(40)]) {
      await Promise.all(
        some.map(async (bytes) => {
          const { port, cuts } = await cutting(server.port, bytes, how);
          await live(port, cuts);
        }),
      );
    }
    await pause(50);
    expect(escaped).toEqual([]);
  });

  test(`a TLS handshake that is cut (${how}) throws nothing`, { timeout: 60_000 }, async () => {
    const files = selfSigned();
    onTestFinished(files.remove);
    const [key, cert] = [readFileSync(files.key, "utf8"), readFileSync(files.cert, "utf8")];
    const secure = createTlsServer({ key, cert }, (near) => {
      const far = connect(server.port, "127.0.0.1");
      near.on("error", () => far.destroy()).pipe(far);
      far.on("error", () => near.destroy()).pipe(near);
    });
    secure.on("tlsClientError", () => {});
    await new Promise<void>((resolve) => secure.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void secure.close());
    const target = (secure.address() as { port: number }).port;
    await Promise.all(
      Array.from({ length: 30 }, async (_, n) => {
        const { port, cuts } = await cutting(target, n * 97, how);
        await live(port, cuts, { ca: cert });
      }),
    );
    await pause(50);
    expect(escaped).toEqual([]);
  });
}

test("a server that is killed in the middle of handshakes: every one that connects is told, and nothing escapes", {
  timeout: 60_000,
}, async () => {
  const mine = await startZooKeeper();
  onTestFinished(() => mine.running.stop());
  const opening = Array.from({ length: 40 }, () =>
    openZookeeper(`zookeeper://127.0.0.1:${mine.port}/x`, { callTimeoutMs: 1500 }).catch((error: unknown) => error),
  );
  await mine.running.end();
  for (const outcome of await Promise.all(opening)) {
    if (!(outcome instanceof Error)) await (outcome as AsyncDisposable)[Symbol.asyncDispose]();
  }
  expect(escaped).toEqual([]);
});
