import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { connect } from "../../src/connect.js";
import type { Locks } from "../../src/locks.js";
import type { Mutex } from "../../src/recipes/mutex.js";
import { peers } from "../../test/servers/peers.js";
import { nodeRedisson, RedissonSpeaker } from "../../test/servers/redisson.js";

/** Waits for the lock, and answers how it is given back. */
type Take = () => Promise<() => Promise<unknown>>;
/** By program: how it takes one name on a server. */
type Taker = (port: number, name: string) => Promise<Take>;

const LEASE_MS = 20_000;
const RETRY_MS = 20;
const RETRIES = { retryCount: 1_000_000, retryDelay: RETRY_MS, retryJitter: 10 };

const ours =
  (layout: "plain" | "redisson" | "redisson-fenced"): Taker =>
  async (port, name) => {
    const mutex = (await connect(`redis://127.0.0.1:${port}`, { layout })).mutex(name);
    return async () => {
      const hold = await mutex.acquire();
      return () => hold.release();
    };
  };

type NodeNames = "curator" | "curator-latch" | "kazoo";

const onZooKeeper = (port: number, nodeNames: NodeNames): Promise<Locks> =>
  connect(`zookeeper://127.0.0.1:${port}/locks`, { nodeNames });

const nodes =
  (
    nodeNames: NodeNames,
    lockOf: (locks: Locks, name: string) => Pick<Mutex, "acquire"> = (locks, name) => locks.mutex(name),
  ): Taker =>
  async (port, name) => {
    const lock = lockOf(await onZooKeeper(port, nodeNames), name);
    return async () => {
      const hold = await lock.acquire();
      return () => hold.release();
    };
  };

const writer = (nodeNames: NodeNames): Taker => nodes(nodeNames, (locks, name) => locks.readWrite(name).write);

const elected =
  (nodeNames: NodeNames): Taker =>
  async (port, name) => {
    const election = (await onZooKeeper(port, nodeNames)).election(name);
    return async () => {
      const term = await election.campaign();
      return () => term.resign();
    };
  };

const COMPARE_AND_DELETE =
  "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/** `SET value NX` and compare-and-delete, asked again until it is taken. */
const polled =
  (life: readonly ["EX" | "PX", number], everyMs: number): Taker =>
  async (port, name) => {
    const redis = new Redis(port);
    return async () => {
      const owner = randomUUID();
      while ((await redis.call("SET", name, owner, ...life, "NX")) === null) await sleep(everyMs);
      return () => redis.eval(COMPARE_AND_DELETE, 1, name, owner);
    };
  };

const speaker =
  (fenced: boolean): Taker =>
  async (port, name) => {
    const them = new RedissonSpeaker(port);
    return async () => {
      await them.lock(name, 1, LEASE_MS, fenced);
      return () => them.unlock(name, 1);
    };
  };

export const TAKERS: Readonly<Record<string, Taker>> = {
  plain: ours("plain"),
  redisson: ours("redisson"),
  "redisson-fenced": ours("redisson-fenced"),
  curator: nodes("curator"),
  "curator, writer": writer("curator"),
  "curator, election": elected("curator"),
  "curator-latch, election": elected("curator-latch"),
  kazoo: nodes("kazoo"),
  "kazoo, writer": writer("kazoo"),
  "kazoo, election": elected("kazoo"),
  "RLock by layout": speaker(false),
  "RFencedLock by layout": speaker(true),
  async "node-redisson 1.0.4"(port, name) {
    const { Redisson } = await nodeRedisson();
    const theirs = new Redisson({ redis: { options: { host: "127.0.0.1", port } } });
    return async () => {
      const lock = theirs.getLock(name);
      await lock.lock(BigInt(LEASE_MS));
      return () => lock.unlock();
    };
  },
  async "redlock 4"(port, name) {
    const Redlock = await (await peers()).redlock4();
    const redlock = new Redlock([new Redis(port)], RETRIES);
    return async () => {
      const lock = await redlock.lock(name, LEASE_MS);
      return () => lock.unlock();
    };
  },
  async "redlock 5"(port, name) {
    const Redlock = await (await peers()).redlock5();
    const redlock = new Redlock([new Redis(port)], RETRIES);
    redlock.on("error", () => {});
    return async () => {
      const lock = await redlock.acquire([name], LEASE_MS);
      return () => lock.release();
    };
  },
  async "redis-semaphore 5"(port, name) {
    const { Mutex } = await (await peers()).redisSemaphore();
    const redis = new Redis(port);
    return async () => {
      // It puts this before its key.
      const mutex = new Mutex(redis, name.replace(/^mutex:/, ""), { lockTimeout: LEASE_MS, acquireTimeout: 120_000 });
      await mutex.acquire();
      return () => mutex.release();
    };
  },
  async "verrou 0.5"(port, name) {
    const { Verrou, redisStore } = await (await peers()).verrou();
    const stores = { redis: { driver: redisStore({ connection: new Redis(port) }) } };
    const verrou = new Verrou({ default: "redis", stores });
    return async () => {
      const lock = verrou.createLock(name, LEASE_MS);
      while (!(await lock.acquireImmediately())) await sleep(RETRY_MS);
      return () => lock.release();
    };
  },
  "Spring RedisLockRegistry by layout": polled(["PX", LEASE_MS], 100),
  "Laravel Cache::lock by layout": polled(["EX", LEASE_MS / 1000], 250),
};
