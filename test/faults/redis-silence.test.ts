import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Engine, EngineEvent } from "../../src/core/engine.js";
import { openRedis, redisEngine } from "../../src/engines/redis/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { programsOf } from "../servers/packages.js";
import { freePorts, Running, until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";
import {
  claimOf,
  closing,
  LIBRARIES,
  type Library,
  listening,
  locksBy,
  locksOn,
  ownServer,
  states,
  waiters,
  withoutIoredis,
} from "./redis-rig.js";

/** Connections that go silent without an end: no reset, no answer, for ever. New ones work. */

let server: RedisServer;
beforeAll(async () => void (server = await startRedis()), 60_000);
afterAll(() => server?.running.stop());

/** Long enough for a busy machine to open a connection in. */
const LIMIT_MS = 2000;

async function proxyTo(port: number): Promise<Proxy> {
  const proxy = await Proxy.to(port);
  onTestFinished(() => proxy.close());
  return proxy;
}

function warnings(locks: Locks): string[] {
  const told: string[] = [];
  locks.on("warning", ({ message }) => told.push(message));
  return told;
}

/** By the ports that the server sees: which connections subscribe. */
async function subscribers(port: number): Promise<Set<number>> {
  const list = await command(port, "CLIENT LIST TYPE pubsub");
  return new Set([...list.matchAll(/ addr=127\.0\.0\.1:(\d+)/g)].map(([, from]) => Number(from)));
}

const topologies: readonly [title: string, start: () => Promise<{ url: string; proxy: Proxy }>][] = [
  [
    "one server",
    async () => {
      const proxy = await proxyTo(server.port);
      return { url: `redis://127.0.0.1:${proxy.port}`, proxy };
    },
  ],
  [
    "Sentinel",
    async () => {
      const mine = await ownServer();
      const proxy = await proxyTo(mine.port);
      const [port = 0] = await freePorts(1);
      const sentinel = await Running.start({
        program: programsOf("Redis")["redis-sentinel"] ?? "",
        args: (folder) => {
          const file = join(folder, "sentinel.conf");
          const lines = [`port ${port}`, "bind 127.0.0.1", `dir ${folder}`];
          lines.push(`sentinel monitor main 127.0.0.1 ${proxy.port} 1`);
          writeFileSync(file, `${lines.join("\n")}\n`);
          return [file];
        },
        ready: async () => {
          if (!(await command(port, "PING")).startsWith("+PONG")) throw new Error("not yet");
        },
      });
      onTestFinished(() => sentinel.stop());
      return { url: `redis+sentinel://127.0.0.1:${port}/main`, proxy };
    },
  ],
  [
    "Cluster",
    async () => {
      const [bus = 0] = await freePorts(1);
      const { port } = await ownServer(["--cluster-enabled", "yes", "--cluster-port", String(bus)]);
      const proxy = await proxyTo(port);
      await command(port, "CONFIG SET cluster-announce-ip 127.0.0.1");
      await command(port, `CONFIG SET cluster-announce-port ${proxy.port}`);
      await command(port, "CLUSTER ADDSLOTSRANGE 0 16383");
      await until("the Cluster is up", async () => (await command(port, "CLUSTER INFO")).includes("cluster_state:ok"));
      return { url: `redis+cluster://127.0.0.1:${proxy.port}`, proxy };
    },
  ],
];

describe.each(topologies)("%s", (_topology, start) => {
  test.each(LIBRARIES)(
    "%s, opened by URL: a silent connection is replaced, holds live on, and a warning says so",
    async (library) => {
      const { url, proxy } = await start();
      const locks = await locksBy(library, url, { callTimeoutMs: LIMIT_MS });
      const told = warnings(locks);
      const hold = await locks.mutex("held").acquire({ leaseMs: 15_000 });
      expect(proxy.silence()).toBeGreaterThan(1);
      const other = await locks.mutex("other").acquire({ waitMs: 20_000 });
      expect(told.join("\n")).toMatch(/said nothing for 2000 ms.*replaced/);
      hold.throwIfLost();
      for (const one of [hold, other]) await one.release();
      expect(await states(locks)).toEqual([]);
    },
    60_000,
  );

  test.each(LIBRARIES)(
    "%s: a silent subscription is replaced while somebody waits; who waits is told by push again",
    async (library) => {
      const { url, proxy } = await start();
      const load = library === "ioredis" ? undefined : withoutIoredis;
      // A client of Sentinel opens several connections, one after the other, within one limit.
      const limitMs = url.includes("sentinel") ? 3 * LIMIT_MS : LIMIT_MS;
      const engine = closing(await openRedis(url, { callTimeoutMs: limitMs }, load));
      const events = listening(engine);
      await until("it subscribes", () => engine.guarantees.wake === "push");
      const [holder, waiter] = [claimOf("s", { leaseMs: 120_000 }), claimOf("s", { leaseMs: 30_000 })];
      await engine.claim(holder);
      await engine.claim(waiter);
      const subscribed = await subscribers(proxy.port);
      expect(proxy.silence((port) => subscribed.has(port))).toBeGreaterThan(0);
      await until("a warning says so, and who waits is asked to look", async () => {
        // The heartbeats of the core: somebody waits.
        await engine.renew([waiter]);
        return (
          events.some(isWarning) && engine.guarantees.wake === "push" && events.some(({ kind }) => kind === "wake")
        );
      });
      const told = events.filter(isWarning).map(({ message }) => message);
      expect(told.join("\n")).toMatch(new RegExp(`pushes.*said nothing for ${limitMs} ms`));
      await engine.release(holder);
      await until("the push", () => events.some((event) => event.kind === "granted" && event.id === waiter.id));
      expect(await engine.release(waiter)).toBe("released");
    },
    150_000,
  );
});

const isWarning = (event: EngineEvent): event is EngineEvent & { kind: "warning" } => event.kind === "warning";

test("node-redis 5 through Sentinel hears on its client: when that is replaced it hears on the next one", async () => {
  const sentinel = topologies.find(([title]) => title === "Sentinel")?.[1];
  const { url, proxy } = (await sentinel?.()) ?? expect.fail();
  const load = (name: string): Promise<unknown> => (name === "redis" ? import("redis5") : withoutIoredis(name));
  const engine = closing(await openRedis(url, { callTimeoutMs: LIMIT_MS }, load));
  const [holder, next] = [claimOf("five"), claimOf("five")];
  await engine.claim(holder);
  await engine.claim(next);
  const events = listening(engine);
  proxy.silence();
  await expect(engine.renew([holder])).rejects.toThrow(/no answer/);
  await until("it does not hear, and then it does", () => events.filter(({ kind }) => kind === "wake").length === 2);
  expect(engine.guarantees.wake).toBe("push");
  expect(await engine.release(holder)).toBe("released");
  await until("a push", () => events.some((event) => event.kind === "granted" && event.id === next.id));
}, 90_000);

test("while there is no subscription it polls and says so, for locks and cells; and pushes again afterwards", async () => {
  const proxy = await proxyTo(server.port);
  const [a, b] = [
    await locksOn(server.url),
    await locksBy("ioredis", `redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: LIMIT_MS }),
  ];
  const told = warnings(b);
  const hold = await a.mutex("polled").acquire();
  const waiting = b.mutex("polled").acquire();
  const opened = b.latch("polled", 1).wait({ waitMs: 20_000 });
  await until("it waits", async () => (await waiters(a, "polled")) === 1);
  const subscribed = await subscribers(server.port);
  // New connections are refused, the one for commands works on.
  proxy.shutOutNew();
  proxy.silence((port) => subscribed.has(port));
  await until("it polls", () => b.guarantees.wake === "poll");
  expect(told.join("\n")).toMatch(/pushes.*said nothing/);
  await hold.release();
  await (await waiting).release();
  await a.latch("polled", 1).countDown();
  await opened;
  await until("it says that this lasts", () => told.some((message) => /cannot be opened/.test(message)));
  proxy.heal();
  await until("it pushes again", () => b.guarantees.wake === "push");
}, 60_000);

test("too slow to subscribe when it is opened: it polls, tries again, and pushes from then on", async () => {
  const proxy = await proxyTo(server.port);
  let connections = 0;
  // The second connection is the one for pushes: from its first byte on nothing goes through.
  proxy.shutOut(() => {
    connections += 1;
    if (connections === 2) proxy.stall();
    return false;
  });
  const engine = closing(await openRedis(`redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: LIMIT_MS }));
  const events = listening(engine);
  expect(engine.guarantees.wake).toBe("poll");
  proxy.heal();
  await until("it pushes", () => engine.guarantees.wake === "push");
  await until("who waits is asked to look", () => events.some(({ kind }) => kind === "wake"));
  const [holder, waiter] = [claimOf("slow"), claimOf("slow", { leaseMs: 30_000 })];
  await engine.claim(holder);
  await engine.claim(waiter);
  await engine.release(holder);
  await until("the push", () => events.some((event) => event.kind === "granted" && event.id === waiter.id));
}, 90_000);

test("a watched cell: a silent subscription is replaced, and what was missed is read", async () => {
  const proxy = await proxyTo(server.port);
  const [a, b] = [
    await locksOn(server.url),
    await locksBy("ioredis", `redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: LIMIT_MS }),
  ];
  const told = warnings(b);
  const opened = b.latch("watched", 2).wait({ waitMs: 50_000 });
  await until("it watches", async () => (await command(server.port, "PUBSUB CHANNELS *watched*")).includes("watched"));
  const subscribed = await subscribers(server.port);
  proxy.silence((port) => subscribed.has(port));
  await a.latch("watched", 2).countDown(2);
  await opened;
  await until("a warning", () => told.length > 0);
}, 60_000);

describe("a client handed in", () => {
  const clients: readonly [string, (port: number) => Promise<Parameters<typeof redisEngine>[0]>][] = [
    [
      "ioredis",
      async (port) => {
        const client = new Redis(port);
        client.on("error", () => {});
        onTestFinished(() => client.disconnect());
        return client;
      },
    ],
    [
      "node-redis",
      async (port) => {
        const client = createClient({ url: `redis://127.0.0.1:${port}` });
        client.on("error", () => {});
        await client.connect();
        onTestFinished(() => client.destroy());
        return client;
      },
    ],
  ];

  test.each(clients)(
    "%s: its own silent connection is not ours to replace, and a warning says so",
    async (_name, make) => {
      const proxy = await proxyTo(server.port);
      const engine: Engine = closing(await redisEngine(await make(proxy.port), { callTimeoutMs: LIMIT_MS }));
      const events = listening(engine);
      proxy.silence();
      await expect(engine.claim(claimOf("handed in"))).rejects.toThrow(/no answer/);
      await until("a warning", () => events.some(isWarning));
      expect(events.find(isWarning)?.message).toMatch(/handed in.*said nothing for 2000 ms/);
    },
  );

  test.each(clients)("%s: while it looks for a server that is away it is not called silent", async (_name, make) => {
    const proxy = await proxyTo(server.port);
    const client = await make(proxy.port);
    // However long a busy machine takes to open a connection, no time passes.
    const clock = new FakeClock();
    const engine: Engine = closing(await redisEngine(client, { callTimeoutMs: LIMIT_MS, wake: "poll", clock }));
    const events = listening(engine);
    const seesTheEnd = new Promise((resolve) => (client as Redis).on("reconnecting", resolve));
    // Nobody listens there any more: a connection that is accepted and ended would be one for a moment.
    await proxy.close();
    await seesTheEnd;
    for (let n = 0; n < 3; n += 1) {
      const asked = engine.claim(claimOf("away")).catch((error: unknown) => error);
      await clock.advance(LIMIT_MS);
      expect(await asked).toBeInstanceOf(Error);
    }
    expect(events.filter(isWarning)).toEqual([]);
  });
});

test.each(LIBRARIES)(
  "%s: disposed of while it is replaced, it leaves no connection behind",
  async (library) => {
    const mine = await ownServer();
    const proxy = await proxyTo(mine.port);
    // No time limit comes to the rescue.
    const clock = new FakeClock();
    const load = library === "ioredis" ? undefined : withoutIoredis;
    const url = `redis://127.0.0.1:${proxy.port}`;
    const engine = await openRedis(url, { callTimeoutMs: LIMIT_MS, wake: "poll", clock }, load);
    process.kill(mine.running.pid, "SIGSTOP");
    onTestFinished(() => void process.kill(mine.running.pid, "SIGCONT"));
    const asked = engine.claim(claimOf("replaced")).catch((error: Error) => error.message);
    const before = proxy.connections;
    await clock.advance(LIMIT_MS);
    expect(await asked).toMatch(/no answer/);
    await until("another is on its way", () => proxy.connections > before);
    await engine[Symbol.asyncDispose]();
    await until("all are gone", () => proxy.connections === 0, 20_000);
  },
  60_000,
);

test("ack: a silent connection for WAIT is replaced", async () => {
  const mine = await ownServer();
  const replica = await ownServer(["--replicaof", "127.0.0.1", String(mine.port), "--repl-diskless-sync-delay", "0"]);
  await until("the replica is in step", async () => (await command(mine.port, "INFO replication")).includes("online"));
  const proxy = await proxyTo(mine.port);
  const locks = await locksOn(`redis://127.0.0.1:${proxy.port}`, { ack: 1, callTimeoutMs: LIMIT_MS });
  const told = warnings(locks);
  await (await locks.mutex("acked").acquire()).release();
  proxy.silence();
  await (await locks.mutex("acked").acquire({ waitMs: 20_000 })).release();
  expect(told.join("\n")).toMatch(/acknowledge.*replaced/);
  expect(replica.port).toBeGreaterThan(0);
}, 60_000);

test.each<[string, Library, string]>([
  ["half of an answer", "ioredis", "$100\r\ngranted 1"],
  ["half of an answer", "node-redis", "$100\r\ngranted 1"],
  ["an answer without an end", "ioredis", "*3\r\n$1\r\na"],
  ["what is no answer", "ioredis", "\u0000\u0001 HTTP/1.1 400 Bad Request\r\n\r\n"],
  ["what is no answer", "node-redis", "\u0000\u0001 HTTP/1.1 400 Bad Request\r\n\r\n"],
])(
  "%s and then nothing (%s): the connection is replaced",
  async (_what, library, bytes) => {
    const proxy = await proxyTo(server.port);
    const locks = await locksBy(library, `redis://127.0.0.1:${proxy.port}`, { callTimeoutMs: LIMIT_MS });
    await (await locks.mutex("frames").acquire()).release();
    proxy.silence(() => true, bytes);
    await (await locks.mutex("frames").acquire({ waitMs: 20_000 })).release();
  },
  60_000,
);
