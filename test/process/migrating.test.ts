import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { CapacityMismatchError } from "../../src/core/errors.js";
import { locksOn } from "../faults/redis-rig.js";
import { peers } from "../servers/peers.js";
import { until } from "../servers/process.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";

/** What docs/migrating.md says about other libraries, on the versions that it names. */

let server: RedisServer;
let client: Redis;
beforeAll(async () => {
  server = await startRedis();
  client = new Redis(server.port);
}, 60_000);
afterAll(async () => {
  client.disconnect();
  await server.running.stop();
});

const plain = () => locksOn(server.url, { layout: "plain" });
const exists = async (key: string): Promise<boolean> => (await command(server.port, `EXISTS ${key}`)) === ":1\r\n";

/** By library: take the name, once; null when it is busy. */
const TAKE: Record<string, (name: string) => Promise<(() => Promise<unknown>) | null>> = {
  async "redlock 4"(name) {
    const Redlock = await (await peers()).redlock4();
    const lock = await new Redlock([client], { retryCount: 0 }).lock(name, 30_000).catch(() => null);
    return lock && (() => lock.unlock());
  },
  async "redlock 5"(name) {
    const Redlock = await (await peers()).redlock5();
    const redlock = new Redlock([client], { retryCount: 0 });
    redlock.on("error", () => {});
    const lock = await redlock.acquire([name], 30_000).catch(() => null);
    return lock && (() => lock.release());
  },
  async "redis-semaphore `Mutex`"(name) {
    const { Mutex } = await (await peers()).redisSemaphore();
    const mutex = new Mutex(client, name, { lockTimeout: 30_000, acquireTimeout: 1 });
    return (await mutex.tryAcquire()) ? () => mutex.release() : null;
  },
  async "verrou, Redis store"(name) {
    const lock = await verrouLock(name, 30_000);
    return (await lock.acquireImmediately()) ? () => lock.release() : null;
  },
};

async function verrouLock(name: string, ttl?: number) {
  const { Verrou, redisStore } = await (await peers()).verrou();
  const stores = { redis: { driver: redisStore({ connection: client }) } };
  return new Verrou({ default: "redis", stores }).createLock(name, ttl);
}

describe("one key, old programs and new ones", () => {
  test.each(Object.keys(TAKE))(
    "%s and the plain layout exclude each other on the key of the table",
    async (library) => {
      const name = `invoice:${library.replace(/\W/g, "")}`;
      const key = library.startsWith("redis-semaphore") ? `mutex:${name}` : name;
      const ours = (await plain()).mutex(key);
      const take = TAKE[library] as (typeof TAKE)[string];

      const release = await take(name);
      expect(release).not.toBeNull();
      expect(await exists(key)).toBe(true);
      expect(await ours.tryAcquire()).toBeNull();
      await release?.();

      const hold = await ours.acquire({ waitMs: 10_000 });
      expect(await take(name)).toBeNull();
      await hold.release();
      const again = await take(name);
      expect(again).not.toBeNull();
      await again?.();
    },
  );

  test("the two layouts do not exclude each other, and tokens keep growing from one to the other", async () => {
    const before = await (await plain()).mutex("layouts").acquire();
    const after = await (await locksOn(server.url)).mutex("layouts").tryAcquire();
    expect(after?.token).toBeGreaterThan(before.token);
    await Promise.all([before.release(), after?.release()]);
  });
});

describe("redlock 5", () => {
  test("gives up after ten tries more with an ExecutionError; here a wait without `waitMs` goes on", async () => {
    const Redlock = await (await peers()).redlock5();
    const redlock = new Redlock([client], { retryDelay: 1, retryJitter: 0 });
    redlock.on("error", () => {});
    const locks = await plain();
    const hold = await locks.mutex("redlock:busy").acquire();
    const gaveUp: unknown = await redlock.acquire(["redlock:busy"], 1000).catch((error: unknown) => error);
    expect(gaveUp).toMatchObject({ name: "ExecutionError" });
    expect((gaveUp as { attempts: unknown[] }).attempts).toHaveLength(11);
    const waits = (await plain()).mutex("redlock:busy").acquire();
    await hold.release();
    await (await waits).release();
  });

  test("acquire does not renew; ours does unless told otherwise", async () => {
    const Redlock = await (await peers()).redlock5();
    await new Redlock([client]).acquire(["redlock:fixed"], 300);
    const locks = await plain();
    const fixed = await locks.mutex("ours:fixed").acquire({ renew: false, leaseMs: 300 });
    const renewed = await locks.mutex("ours:renewed").acquire({ leaseMs: 3000 });
    let renewals = 0;
    locks.on("renewed", () => (renewals += 1));
    await until("ours was renewed for longer than its lease", () => renewals >= 4);
    expect(await exists("redlock:fixed")).toBe(false);
    expect(fixed.state).toBe("lost");
    renewed.throwIfLost();
    await renewed.release();
  });
});

describe("redis-semaphore", () => {
  test("acquire waits for acquireTimeout and throws a TimeoutError; a refresh that finds the lock gone calls onLockLost", async () => {
    const { Mutex, TimeoutError } = await (await peers()).redisSemaphore();
    const holder = new Mutex(client, "lost", {
      lockTimeout: 60_000,
      refreshInterval: 50,
      onLockLost: (error) => lost.push(error),
    });
    const lost: Error[] = [];
    await holder.acquire();
    await expect(new Mutex(client, "lost", { acquireTimeout: 50 }).acquire()).rejects.toBeInstanceOf(TimeoutError);
    await command(server.port, "DEL mutex:lost");
    await until("it is told", () => lost.length > 0);
    expect(lost[0]?.constructor.name).toBe("LostLockError");
  });

  test("its store keeps no limit: another program's larger limit lets it in; ours is told", async () => {
    const { Semaphore } = await (await peers()).redisSemaphore();
    const [one, two] = [1, 2].map((limit) => new Semaphore(client, "limit", limit, { acquireTimeout: 50 }));
    await one?.acquire();
    await two?.acquire();
    await Promise.all([one?.release(), two?.release()]);
    const locks = await locksOn(server.url);
    const hold = await locks.semaphore("ours:limit", 1).acquire();
    await expect(locks.semaphore("ours:limit", 2).acquire()).rejects.toBeInstanceOf(CapacityMismatchError);
    await hold.release();
  });
});

describe("verrou", () => {
  test("run answers a pair, acquire true or false, and nothing is renewed", async () => {
    expect(await (await verrouLock("run")).run(async () => 7)).toEqual([true, 7]);
    const locks = await plain();
    const hold = await locks.mutex("run").acquire();
    expect(await (await verrouLock("run")).acquire({ retry: { timeout: 50 } })).toBe(false);
    expect(await (await verrouLock("run")).acquireImmediately()).toBe(false);
    await hold.release();
    const short = await verrouLock("short", 200);
    expect(await short.acquireImmediately()).toBe(true);
    await until("it has ended", async () => !(await exists("short")));
  });

  test("a lock without a ttl of its own has 30 s", async () => {
    const lock = await verrouLock("default");
    await lock.acquireImmediately();
    const left = Number((await command(server.port, "PTTL default")).slice(1));
    expect(left).toBeGreaterThan(10_000);
    expect(left).toBeLessThanOrEqual(30_000);
    await lock.release();
  });
});
