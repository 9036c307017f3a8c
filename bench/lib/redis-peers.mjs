// Ways to hold a mutex in Redis, all in one shape: take(name) waits until it is ours and gives back a function that releases it.
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { holdfast, LEASE_MS, POLL_MS, pause } from "../stores/holdfast.mjs";

export const COMPARE_AND_DELETE = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`;

async function rawIoredis({ port }) {
  const client = new Redis(port);
  client.defineCommand("compareAndDelete", { numberOfKeys: 1, lua: COMPARE_AND_DELETE });
  return {
    async take(name) {
      const value = randomBytes(16).toString("base64url");
      while ((await client.set(name, value, "PX", LEASE_MS, "NX")) === null) await pause(POLL_MS);
      return () => client.compareAndDelete(name, value);
    },
    close: () => client.disconnect(),
  };
}

async function rawNodeRedis({ url }) {
  const client = createClient({ url });
  await client.connect();
  const sha = await client.scriptLoad(COMPARE_AND_DELETE);
  return {
    async take(name) {
      const value = randomBytes(16).toString("base64url");
      while ((await client.set(name, value, { PX: LEASE_MS, NX: true })) === null) await pause(POLL_MS);
      return () => client.evalSha(sha, { keys: [name], arguments: [value] });
    },
    close: () => client.destroy(),
  };
}

const FOR_EVER = { retryCount: 1e9, retryDelay: POLL_MS, retryJitter: 50 };

async function redlock4({ port }) {
  const { default: Redlock } = await import("redlock4");
  const client = new Redis(port);
  const redlock = new Redlock([client], { ...FOR_EVER, retryCount: -1 });
  return {
    async take(name) {
      const lock = await redlock.lock(name, LEASE_MS);
      return () => lock.unlock();
    },
    close: () => client.disconnect(),
  };
}

async function redlock5({ port }) {
  const module = await import("redlock5");
  const Redlock = module.default.default ?? module.default;
  const client = new Redis(port);
  const redlock = new Redlock([client], FOR_EVER);
  redlock.on("error", () => {});
  return {
    async take(name) {
      const lock = await redlock.acquire([name], LEASE_MS);
      return () => lock.release();
    },
    close: () => client.disconnect(),
  };
}

async function redisSemaphore({ port }) {
  const { Mutex } = await import("redis-semaphore");
  const client = new Redis(port);
  return {
    async take(name) {
      const mutex = new Mutex(client, name, { lockTimeout: LEASE_MS, acquireTimeout: 1e9 });
      await mutex.acquire();
      return () => mutex.release();
    },
    close: () => client.disconnect(),
  };
}

async function redlockUniversal({ port }) {
  const { createLock, IoredisAdapter } = await import("redlock-universal");
  const client = new Redis(port);
  const adapter = new IoredisAdapter(client);
  return {
    async take(name) {
      const lock = createLock({ adapter, key: name, ttl: LEASE_MS, retryAttempts: 1e6, retryDelay: POLL_MS });
      const handle = await lock.acquire();
      return () => lock.release(handle);
    },
    close: () => client.disconnect(),
  };
}

async function verrou({ port }) {
  const { Verrou } = await import("@verrou/core");
  const { redisStore } = await import("@verrou/core/drivers/redis");
  const client = new Redis(port);
  const locks = new Verrou({ default: "redis", stores: { redis: { driver: redisStore({ connection: client }) } } });
  return {
    async take(name) {
      const lock = locks.createLock(name, LEASE_MS);
      await lock.acquire({ retry: { timeout: null } });
      return () => lock.release();
    },
    close: () => client.disconnect(),
  };
}

export const PEERS = {
  holdfast: (at) => holdfast.open(at),
  "raw ioredis": rawIoredis,
  "raw node-redis": rawNodeRedis,
  "redlock 4": redlock4,
  "redlock 5 beta": redlock5,
  "redis-semaphore": redisSemaphore,
  "redlock-universal": redlockUniversal,
  verrou,
};
