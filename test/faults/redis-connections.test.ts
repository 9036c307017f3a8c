import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { openRedis, redisEngine } from "../../src/engines/redis/index.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { type ClusterSet, command, type RedisServer, startCluster, startRedis } from "../servers/redis.js";
import { claimOf, closing, LIBRARIES, locksBy, ownServer } from "./redis-rig.js";
import { inSomeTries } from "./rig.js";

/** Connections that end at every step: the program lives, whatever the libraries emit, and works again afterwards. */

let server: RedisServer;
let cluster: ClusterSet;
beforeAll(async () => void ([server, cluster] = await Promise.all([startRedis(), startCluster()])), 60_000);
afterAll(() => Promise.all([server?.running.stop(), cluster?.stop()]));

const withoutIoredis = (name: string): Promise<unknown> =>
  name === "ioredis"
    ? Promise.reject(Object.assign(new Error(`Cannot find package '${name}'`), { code: "ERR_MODULE_NOT_FOUND" }))
    : import(name);

/** What would have ended the program. */
function fatal(): unknown[] {
  const seen: unknown[] = [];
  const note = (error: unknown): void => void seen.push(error);
  for (const event of ["uncaughtException", "unhandledRejection"]) {
    process.on(event, note);
    onTestFinished(() => void process.off(event, note));
  }
  return seen;
}

type Opened = { readonly engine: Engine; readonly close: () => void };
type Open = (port: number, callTimeoutMs?: number) => Promise<Opened>;

/** A call that fails costs no more than this. */
const SOON_MS = 100;

const byUrl =
  (load?: (name: string) => Promise<unknown>): Open =>
  async (port, callTimeoutMs = 5000) => {
    const engine = await openRedis(`redis://127.0.0.1:${port}`, { callTimeoutMs }, load);
    return { engine, close: () => {} };
  };

/** A program's own client, with the listener that its library asks for. */
const ioredis =
  (Library: typeof Redis): Open =>
  async (port, callTimeoutMs = 5000) => {
    const client = new Library(port, { retryStrategy: () => 50 });
    client.on("error", () => {});
    try {
      return { engine: await redisEngine(client, { callTimeoutMs }), close: () => client.disconnect() };
    } catch (error) {
      client.disconnect();
      throw error;
    }
  };

const nodeRedis =
  (create: typeof createClient): Open =>
  async (port, callTimeoutMs = 5000) => {
    const client = create({ socket: { port, reconnectStrategy: (retries) => (retries < 5 ? 20 : false) } });
    client.on("error", () => {});
    const close = (): void => {
      if (client.isOpen) client.destroy();
    };
    try {
      await client.connect();
      return { engine: await redisEngine(client, { callTimeoutMs }), close };
    } catch (error) {
      close();
      throw error;
    }
  };

const ways: readonly [string, Open][] = [
  ["ioredis by URL", byUrl()],
  ["node-redis by URL", byUrl(withoutIoredis)],
  ["ioredis 6 handed in", ioredis(Redis)],
  ["ioredis 5 handed in", ioredis(Redis5 as unknown as typeof Redis)],
  ["node-redis 6 handed in", nodeRedis(createClient)],
  ["node-redis 5 handed in", nodeRedis(createClient5 as unknown as typeof createClient)],
];

/** Every verb once; what fails has failed. */
async function everything(engine: Engine, name: string): Promise<void> {
  const [one, two] = [claimOf(name, { leaseMs: 300 }), claimOf(name, { leaseMs: 300 })];
  const unwatch = engine.cells?.watch(name, () => {});
  await Promise.allSettled([engine.claim(one), engine.claim(two)]);
  await Promise.allSettled([engine.renew([one, two]), engine.cells?.read(name), engine.serverInfo?.()]);
  await Promise.allSettled([engine.release(one), engine.release(two)]);
  unwatch?.();
}

describe.each(ways)("%s", (title, open) => {
  test("connections that end after n bytes of answers, for n over the whole conversation", async () => {
    const seen = fatal();
    const proxy = await Proxy.to(server.port);
    onTestFinished(() => proxy.close());
    const steps = [
      ...Array.from({ length: 25 }, (_, n) => 1 + n * 13),
      ...Array.from({ length: 14 }, (_, n) => 400 + n * 700),
    ];
    for (const bytes of steps) {
      proxy.endAfter(bytes);
      const opened = await open(proxy.port, SOON_MS).catch(() => null);
      if (opened === null) continue;
      await everything(opened.engine, `${title} ${bytes}`);
      await opened.engine[Symbol.asyncDispose]();
      opened.close();
    }
    proxy.heal();
    const { engine, close } = await open(proxy.port);
    const claim = claimOf(`${title} after`);
    expect((await engine.claim(claim)).kind).toBe("granted");
    expect(await engine.release(claim)).toBe("released");
    await engine[Symbol.asyncDispose]();
    close();
    expect(seen).toEqual([]);
  }, 120_000);

  test("connections that are killed while it works, and while it is disposed of", async () => {
    const seen = fatal();
    const mine = await ownServer();
    const state = { over: false };
    const killer = (async () => {
      while (!state.over) {
        for (const type of ["normal", "pubsub"]) await command(mine.port, `CLIENT KILL TYPE ${type}`).catch(() => "");
        await new Promise((resolve) => setTimeout(resolve, 7));
      }
    })();
    for (let round = 0; round < 12; round += 1) {
      const opened = await open(mine.port, SOON_MS).catch(() => null);
      if (opened === null) continue;
      await everything(opened.engine, `killed ${round}`);
      await opened.engine[Symbol.asyncDispose]();
      opened.close();
    }
    state.over = true;
    await killer;
    expect(seen).toEqual([]);
  }, 120_000);
});

/** How many connections the server has, beside the one that asks. */
async function connectionsOf({ port }: RedisServer): Promise<number> {
  const list = await command(port, "CLIENT LIST");
  return [...list.matchAll(/\bid=\d+/g)].length - 1;
}

test("a client handed in stays open: when the engine is disposed of, and when it cannot be opened", async () => {
  for (const make of [
    (port: number) => {
      const client = new Redis(port);
      return { client, ping: () => client.ping(), close: async () => client.disconnect() };
    },
    (port: number) => {
      const client = createClient({ socket: { port } });
      return { client, ping: async () => client.ping(), close: async () => client.destroy(), ready: client.connect() };
    },
  ]) {
    const mine = await ownServer();
    const { client, ping, close, ...more } = make(mine.port);
    await ("ready" in more ? more.ready : ping());
    const engine = await redisEngine(client);
    expect(await connectionsOf(mine)).toBe(2);
    await engine[Symbol.asyncDispose]();
    await expect(redisEngine(client, { ack: "majority" })).rejects.toThrow(/no replica/);
    await until("only the program's own connection is left", async () => (await connectionsOf(mine)) === 1);
    expect(await ping()).toBe("PONG");
    await close();
  }
});

test.each([
  ["ioredis", undefined],
  ["node-redis", withoutIoredis],
])(
  "a client made for a URL is closed: when the engine is disposed of, and when it cannot be opened (%s)",
  async (_library, load) => {
    const mine = await ownServer();
    const engine = await openRedis(mine.url, {}, load);
    expect(await connectionsOf(mine)).toBe(2);
    await engine[Symbol.asyncDispose]();
    await until("nothing is left of it", async () => (await connectionsOf(mine)) === 0);
    await expect(openRedis(mine.url, { ack: "majority" }, load)).rejects.toThrow(/no replica/);
    await until("nothing is left of that either", async () => (await connectionsOf(mine)) === 0);
  },
);

test.each([
  ["ioredis", undefined],
  ["node-redis", withoutIoredis],
])(
  "a Cluster whose connections are killed while it works (%s)",
  async (_library, load) => {
    const seen = fatal();
    const engine = closing(await inSomeTries(() => openRedis(cluster.url, { callTimeoutMs: 1000 }, load)));
    for (let round = 0; round < 15; round += 1) {
      const working = everything(engine, `cluster ${round}`);
      for (const { port } of cluster.servers) {
        for (const type of ["normal", "pubsub"]) await command(port, `CLIENT KILL TYPE ${type}`).catch(() => "");
      }
      await working;
    }
    await until("it works again", () =>
      engine.claim(claimOf("cluster after", { wait: false, leaseMs: 100 })).then(
        ({ kind }) => kind === "granted",
        () => false,
      ),
    );
    expect(seen).toEqual([]);
  },
  120_000,
);

test("a channel added while the channels are subscribed again is subscribed, too", async () => {
  const mine = await ownServer();
  const proxy = await Proxy.to(mine.port);
  onTestFinished(() => proxy.close());
  const engine = closing(await openRedis(`redis://127.0.0.1:${proxy.port}`));
  engine.cells?.watch("before", () => {});
  // Slow enough that some are added at each step of the new connection.
  proxy.delay(100);
  await command(mine.port, "CLIENT KILL TYPE pubsub");
  const names = Array.from({ length: 60 }, (_, n) => `added ${n}`);
  for (const name of names) {
    engine.cells?.watch(name, () => {});
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  await until("all are subscribed", async () => {
    const channels = await command(mine.port, "PUBSUB CHANNELS holdfast:cell:*");
    return ["before", ...names].every((name) => channels.includes(`holdfast:cell:${name}\r`));
  });
});

test.each(LIBRARIES)(
  "a server that does not let %s subscribe: a warning from before anybody could listen reaches who listens",
  async (library) => {
    const mine = await ownServer();
    await command(mine.port, "ACL SETUSER u on >p ~* resetchannels +@all");
    const locks = await locksBy(library, `redis://u:p@127.0.0.1:${mine.port}`);
    const told = new Promise<string>((resolve) => locks.on("warning", ({ message }) => resolve(message)));
    expect(await told).toMatch(/does not push here.*channel/);
    expect(locks.guarantees.wake).toBe("poll");
    const chosen = await locksBy(library, mine.url, { wake: "poll" });
    const warned: string[] = [];
    chosen.on("warning", ({ message }) => warned.push(message));
    await (await chosen.mutex("m").acquire()).release();
    expect(warned).toEqual([]);
  },
);
