import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { InvalidOptionError } from "../../src/core/errors.js";
import {
  fencedEval,
  fencedSet,
  fenceKeyOf,
  InvalidTokenError,
  type RedisClient,
  redisFence,
  StaleTokenError,
} from "../../src/fence/index.js";
import { type RedisServer, startRedis } from "../servers/redis.js";

let server: RedisServer;
let redis: Redis;
let node: ReturnType<typeof createClient>;
beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.url);
  node = createClient({ url: server.url });
  await node.connect();
});
afterAll(async () => {
  redis?.disconnect();
  node?.destroy();
  await server?.running.stop();
});

describe.each<[string, () => RedisClient]>([
  ["ioredis", () => redis],
  ["node-redis", () => node],
])("%s", (_, clientOf) => {
  beforeEach(() => redis.flushall());

  test("a value is text or bytes; it ends when it was told to, and its fence does not", async () => {
    const client = clientOf();
    await fencedSet(client, "text", "a", 5);
    expect([await redis.get("text"), await redis.pttl("text")]).toEqual(["a", -1]);
    const bytes = Buffer.from([0, 255, 10]);
    await fencedSet(client, "bytes", bytes, 5, { expireMs: 600_000 });
    expect(await redis.getBuffer("bytes")).toEqual(bytes);
    expect(await redis.pttl("bytes")).toBeGreaterThan(0);
    expect(await redis.pttl("{bytes}:fence")).toBe(-1);
    for (const wrong of [5, null, undefined, {}, new Uint8Array(2)]) {
      await expect(fencedSet(client, "text", wrong as string, 6)).rejects.toThrow(InvalidOptionError);
    }
    for (const expireMs of [0, 0.5, Number.NaN, "5"]) {
      const options = { expireMs: expireMs as number };
      await expect(fencedSet(client, "text", "b", 6, options)).rejects.toThrow(InvalidOptionError);
    }
    await fencedSet(client, "text", "c", 5);
    expect(await redis.get("text")).toBe("c");
  });

  test("the fence stands where it was told to, and is the one that counts", async () => {
    const client = clientOf();
    await fencedSet(client, "key", "a", { token: 7, floor: 5, live: [5, 7] }, { fenceKey: "mine" });
    expect(await redis.hgetall("mine")).toEqual({ fence: "5", newest: "7", live: ",5,7," });
    expect(await redis.exists("{key}:fence")).toBe(0);
    const stale = fencedSet(client, "key", "b", 4, { fenceKey: "mine" });
    await expect(stale).rejects.toMatchObject({ resource: "key", token: 4, fence: 5 });
    await fencedSet(client, "key", "c", 4);
    expect(await redis.get("key")).toBe("c");
  });

  test("a script finds its own keys and arguments, its answer comes back, and its errors are its own", async () => {
    const client = clientOf();
    const script = "return { KEYS[1], KEYS[2], ARGV[1], #KEYS, #ARGV }";
    const call = { script, keys: ["a", "b"], args: ["x"], fenceKey: "mine" };
    expect(await fencedEval(client, call, 5)).toEqual(["a", "b", "x", 2, 1]);
    const failing = { script: "return redis.error_reply('MINE failed')", keys: [], fenceKey: "mine" };
    const error: unknown = await fencedEval(client, failing, 5).catch((cause: unknown) => cause);
    expect([error instanceof StaleTokenError, String(error)]).toEqual([false, expect.stringContaining("MINE failed")]);
    await expect(fencedEval(client, { ...failing, keys: [] }, 4)).rejects.toMatchObject({ resource: "mine", fence: 5 });
    await expect(fencedEval(client, call, 5, { strct: true } as object)).rejects.toThrow(/no such option/);
  });

  test("a fence that is asked by itself names the resource, and passes on what is not about tokens", async () => {
    const client = clientOf();
    const fence = redisFence(client);
    await fence.accept("door", { token: 7, floor: 6 });
    await fence.raise("other", 9);
    expect([await redis.hget("fence:door", "fence"), await redis.hget("fence:other", "fence")]).toEqual(["6", "9"]);
    await expect(fence.accept("door", 5)).rejects.toMatchObject({ resource: "door", token: 5, fence: 6 });
    await fence.raise("other", 4);
    await expect(fence.accept("other", 8)).rejects.toThrow(StaleTokenError);
    await expect(fence.raise("other", 0)).rejects.toThrow(InvalidTokenError);
    await redisFence(client, { prefix: "p:" }).accept("other", 1);
    // Strict: accepted once; a raise is no use of the token.
    const strict = redisFence(client, { strict: true, prefix: "s:" });
    await strict.raise("r", 5);
    await strict.accept("r", 5);
    await expect(strict.accept("r", 5)).rejects.toThrow(StaleTokenError);
    await redis.set("fence:text", "no hash");
    const error: unknown = await fence.accept("text", 5).catch((cause: unknown) => cause);
    expect([error instanceof StaleTokenError, String(error)]).toEqual([false, expect.stringContaining("WRONGTYPE")]);
    expect(() => redisFence(client, { prfix: "p" } as object)).toThrow(/no such option/);
  });
});

test("the key of a fence is told from one key, and is a text", () => {
  for (const wrong of [[], [""], [5], [null], ["a", "b"]]) {
    expect(() => fenceKeyOf(wrong as string[])).toThrow(InvalidOptionError);
  }
  expect([fenceKeyOf(["a"]), fenceKeyOf(["a{b}c"])]).toEqual(["{a}:fence", "a{b}c:fence"]);
});
