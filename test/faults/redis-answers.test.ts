import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient, RESP_TYPES } from "redis";
import { createClient as createClient5, RESP_TYPES as RESP_TYPES5 } from "redis5";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { StaleTokenError } from "../../src/core/errors.js";
import { type RedisClient, redisEngine } from "../../src/engines/redis/index.js";
import { fencedSet, redisFence } from "../../src/fence/redis.js";
import { until } from "../servers/process.js";
import { type RedisServer, startRedis } from "../servers/redis.js";
import { closing, states } from "./redis-rig.js";

/** Client libraries can be told to answer in other types; the engine reads them all. */

let server: RedisServer;
beforeAll(async () => void (server = await startRedis(["--appendonly", "yes", "--appendfsync", "always"])), 60_000);
afterAll(() => server?.running.stop());

type Client = RedisClient & Parameters<typeof redisFence>[0];
type Shape = readonly [title: string, open: () => Promise<Client>];

/** Everything that can be a Buffer is one, numbers are texts, maps are Maps. */
const mapping = (types: typeof RESP_TYPES) => ({
  [types.BLOB_STRING]: Buffer,
  [types.SIMPLE_STRING]: Buffer,
  [types.VERBATIM_STRING]: Buffer,
  [types.NUMBER]: String,
  [types.MAP]: Map,
});

const nodeRedis = (RESP: 2 | 3, how: "options" | "withTypeMapping"): Shape => [
  `node-redis 6, RESP ${RESP}, ${how}`,
  async () => {
    const typeMapping = mapping(RESP_TYPES);
    const client = createClient({
      url: server.url,
      RESP,
      ...(how === "options" ? { commandOptions: { typeMapping } } : {}),
    });
    client.on("error", () => {});
    await client.connect();
    onTestFinished(() => client.destroy());
    return how === "options" ? client : client.withTypeMapping(typeMapping);
  },
];

const shapes: readonly Shape[] = [
  nodeRedis(2, "options"),
  nodeRedis(3, "options"),
  nodeRedis(2, "withTypeMapping"),
  nodeRedis(3, "withTypeMapping"),
  ...([2, 3] as const).map(
    (RESP): Shape => [
      `node-redis 5, RESP ${RESP}`,
      async () => {
        const typeMapping = mapping(RESP_TYPES5);
        const client = createClient5({ url: server.url, RESP, commandOptions: { typeMapping } });
        client.on("error", () => {});
        await client.connect();
        onTestFinished(() => client.destroy());
        return client;
      },
    ],
  ),
  [
    "ioredis 6, stringNumbers and keyPrefix",
    async () => {
      const client = new Redis(server.port, { stringNumbers: true, keyPrefix: "app:" });
      onTestFinished(() => client.disconnect());
      return client;
    },
  ],
  [
    "ioredis 5, stringNumbers and keyPrefix",
    async () => {
      const client = new Redis5(server.port, { stringNumbers: true, keyPrefix: "app:" });
      onTestFinished(() => client.disconnect());
      return client;
    },
  ],
];

test.each(shapes)("%s: locks, cells, pushes, inspect, guarantees and fences", async (title, open) => {
  const client = await open();
  const [a, b] = await Promise.all(
    [0, 1].map(async () => {
      const locks = await connect(closing(await redisEngine(client)));
      onTestFinished(() => locks.close());
      return locks;
    }),
  );
  if (a === undefined || b === undefined) throw new Error("not connected");
  expect(a.guarantees).toMatchObject({ survivesRestart: true, wake: "push", exclusion: "single-server" });

  const hold = await a.semaphore(`${title} s`, 2).acquire({ permits: 2 });
  const waiting = b.semaphore(`${title} s`, 2).acquire();
  await until("it waits", async () => (await states(a, { prefix: title }))[0]?.waiters.length === 1);
  await hold.release();
  const next = await waiting;
  expect(next.token).toBeGreaterThan(hold.token);
  await next.release();

  const counter = a.counter(`${title} c`);
  await counter.add(3);
  expect(await b.counter(`${title} c`).add(4)).toBe(7);
  expect(await counter.get()).toBe(7);
  const latch = b.latch(`${title} l`, 2);
  const opened = latch.wait({ waitMs: 10_000 });
  for (let n = 0; n < 2; n += 1) await a.latch(`${title} l`, 2).countDown();
  await opened;
  expect(await latch.count()).toBe(0);

  const engine = closing(await redisEngine(client, { layout: "plain" }));
  const claim = { name: `${title} p`, id: `${title} 0123456789`, units: 1, capacity: 1, leaseMs: 5000, wait: false };
  const owner = { client: "c", host: "h", pid: 1 };
  expect((await engine.claim({ ...claim, owner })).kind).toBe("granted");
  expect(await states(engine, { name: claim.name })).toHaveLength(1);
  expect(await engine.release(claim)).toBe("released");
  expect(await engine.renew([claim])).toEqual([{ kind: "gone", revoked: true }]);

  const fence = redisFence(client);
  await fence.accept(title, { token: 7, floor: 7 });
  await expect(fence.accept(title, { token: 6, floor: 6 })).rejects.toBeInstanceOf(StaleTokenError);
  await fencedSet(client, `${title} key`, "value", { token: 9, floor: 9 });
  await expect(fencedSet(client, `${title} key`, "old", { token: 8, floor: 8 })).rejects.toBeInstanceOf(
    StaleTokenError,
  );
});
