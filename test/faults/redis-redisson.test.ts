import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { UnsupportedError } from "../../src/core/errors.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { pause, until } from "../servers/process.js";
import { command, type RedisServer, startCluster, startRedis } from "../servers/redis.js";
import { nodeRedisson, RedissonSpeaker } from "../servers/redisson.js";
import { claimOf, closing, engineOn, listening, locksOn, ownServer } from "./redis-rig.js";

let server: RedisServer;
beforeAll(async () => void (server = await startRedis()), 60_000);
afterAll(() => server?.running.stop());

const layouts = ["redisson", "redisson-fenced"] as const;
const locksOf = (layout: (typeof layouts)[number] = "redisson") => locksOn(server.url, { layout });
const engineOf = (layout: (typeof layouts)[number] = "redisson") => engineOn(server.url, { layout });

function speaker(port = server.port): RedissonSpeaker {
  const made = new RedissonSpeaker(port);
  onTestFinished(() => made.close());
  return made;
}

const wakes = (events: readonly EngineEvent[], name: string): number =>
  events.filter((event) => event.kind === "wake" && event.name === name).length;

test.each(layouts)("%s: a hash at exactly the lock's name with one field, whose value is 1", async (layout) => {
  const locks = await locksOf(layout);
  expect(locks.guarantees).toMatchObject({ order: "none", wake: "push", token: "monotonic-if-clocks" });
  const name = `${layout}:hash`;
  const hold = await locks.mutex(name).acquire({ leaseMs: 5000 });
  const field = `holdfast:${hold.id}:${hold.token}`;
  const redis = redisOn(server.port);
  expect(await redis.hgetall(name)).toEqual({ [field]: "1" });
  expect(await redis.pttl(name)).toBeGreaterThan(0);
  expect(await locks.mutex(name).holders()).toMatchObject([{ id: hold.id, token: hold.token }]);
  await hold.release();
  expect(await redis.exists(name)).toBe(0);
  const next = await locks.mutex(name).acquire();
  expect(next.token).toBeGreaterThan(hold.token);
  await redis.del(name);
  await redis.hset(name, "uuid:17", 1);
  await expect(next.release()).rejects.toThrow(/lost/);
  expect(await redis.hgetall(name)).toEqual({ "uuid:17": "1" });
  expect(await locks.mutex(name).tryAcquire()).toBeNull();
  // The number behind theirs is a thread and no token.
  expect(await locks.mutex(name).holders()).toMatchObject([{ id: "uuid:17", token: 0, owner: { client: "uuid:17" } }]);
});

test("node-redisson's RLock excludes ours and is excluded by it, and each wakes the other", async () => {
  const { Redisson } = await nodeRedisson();
  const theirs = new Redisson({ redis: { options: { host: "127.0.0.1", port: server.port } } });
  onTestFinished(() => theirs.quit());
  const locks = await locksOf();
  const name = "shared";
  const hold = await locks.mutex(name).acquire({ leaseMs: 60_000 });
  expect(await theirs.getLock(name).tryLock(0n, 5000n)).toBe(false);
  // It sleeps as long as the lease lasts unless a message comes.
  const waiting = theirs.getLock(name);
  const taken = waiting.lock(20_000n);
  await until("they listen", async () =>
    (await command(server.port, `PUBSUB NUMSUB redisson_lock__channel:{${name}}`)).endsWith(":1\r\n"),
  );
  await hold.release();
  await taken;
  expect(await locks.mutex(name).tryAcquire()).toBeNull();
  const mine = locks.mutex(name).acquire();
  await sleep(200);
  await waiting.unlock();
  await (await mine).release();
}, 60_000);

test("who waits is woken by message 0 on the lock's channel, and asks again once it listens", async () => {
  const engine = await engineOf();
  const events = listening(engine);
  const them = speaker();
  expect(await them.tryLock("wake", 1, 60_000)).toBeNull();
  expect((await engine.claim(claimOf("wake"))).kind).toBe("busy");
  await until("it was subscribed, and what was missed is asked for", () => wakes(events, "wake") === 1);
  await them.unlock("wake", 1);
  await until("their release was heard", () => wakes(events, "wake") === 2);
  // Who does not wait does not listen.
  expect(await them.tryLock("try", 1, 60_000)).toBeNull();
  expect((await engine.claim(claimOf("try", { wait: false }))).kind).toBe("busy");
  expect(await command(server.port, "PUBSUB NUMSUB redisson_lock__channel:{try}")).toMatch(/:0\r\n$/);
  // A name for which nobody asks any more is left.
  const channel = "PUBSUB NUMSUB redisson_lock__channel:{wake}";
  await until("it does not listen any more", async () => (await command(server.port, channel)).endsWith(":0\r\n"));
}, 60_000);

test.each(layouts)("%s: a waiter by layout is woken by our release, long before the lease ends", async (layout) => {
  const locks = await locksOf(layout);
  const [them, name] = [speaker(), `${layout}:their turn`];
  const hold = await locks.mutex(name).acquire({ leaseMs: 3_600_000 });
  const taken = them.lock(name, 7, 60_000, layout === "redisson-fenced");
  await until("they listen", async () =>
    (await command(server.port, `PUBSUB NUMSUB "redisson_lock__channel:{${name}}"`)).endsWith(":1\r\n"),
  );
  await pause(50);
  await hold.release();
  expect((await taken).messages).toBeGreaterThan(0);
  expect(await locks.mutex(name).tryAcquire()).toBeNull();
  expect(await them.unlock(name, 7)).toBe("free");
});

test("redisson-fenced: tokens grow over both programs' locks; redisson keeps no token key", async () => {
  const locks = await locksOf("redisson-fenced");
  const [them, name] = [speaker(), "tokens"];
  await them.tryLock(name, 1, 60_000, true);
  expect(await them.token(name)).toBe(1);
  await them.unlock(name, 1);
  let last = 1;
  for (let round = 0; round < 3; round += 1) {
    const hold = await locks.mutex(name).acquire();
    expect(hold.token).toBeGreaterThan(last);
    expect(await them.token(name)).toBe(hold.token);
    await hold.release();
    await them.tryLock(name, 1, 60_000, true);
    last = await them.token(name);
    expect(last).toBe(hold.token + 1);
    await them.unlock(name, 1);
  }
  // Where they counted ahead of the clock, ours still is higher.
  await command(server.port, "SET redisson_lock_token:{tokens} 8000000000000000");
  const hold = await locks.mutex(name).acquire();
  expect(hold.token).toBe(8_000_000_000_000_001);
  await hold.release();
  await (await (await locksOf()).mutex("no token").acquire()).release();
  expect(await command(server.port, 'EXISTS "redisson_lock_token:{no token}"')).toBe(":0\r\n");
});

test.each(layouts)(
  "pitfall 54: %s: a late copy of a claim is gone, and claims asked again take once",
  async (layout) => {
    const engine = await engineOf(layout);
    const claim = claimOf(`${layout}:late`);
    const first = await engine.claim(claim);
    expect(first).toMatchObject({ kind: "granted", leftMs: 10_000 });
    expect(await engine.claim(claim)).toMatchObject({ token: (first as { token: number }).token });
    expect(await engine.release(claim)).toBe("released");
    expect((await engine.claim(claim)).kind).toBe("gone");
    expect(await engine.release(claim)).toBe("revoked");
  },
);

test("a lock is renewed, and lost when another program deletes it; a copy of a renewal moves nothing back", async () => {
  const engine = await engineOf();
  const claim = claimOf("renewed", { leaseMs: 60_000 });
  await engine.claim(claim);
  expect(await engine.renew([{ ...claim, leaseMs: 1000 }])).toMatchObject([{ kind: "granted" }]);
  const [answer] = await engine.renew([{ ...claim, leaseMs: 120_000 }]);
  expect(answer).toMatchObject({ kind: "granted", leftMs: 120_000 });
  expect(await engine.resize(claim, 1)).toBe("resized");
  await command(server.port, "DEL renewed");
  expect(await engine.renew([claim])).toEqual([{ kind: "gone" }]);
  expect(await engine.resize(claim, 1)).toBe("gone");
});

test("RCountDownLatch: both count down, either opens it for the other, and a count may be set again", async () => {
  const locks = await locksOf();
  const them = speaker();
  const latch = locks.latch("start", 3);
  // As for Redisson, it is open until a count is set.
  expect(await latch.count()).toBe(0);
  await latch.wait();
  await latch.reset(3);
  expect(await them.count("start")).toBe(3);
  expect(await them.trySetCount("start", 5)).toBe(0);
  const [mine, yours] = [latch.wait(), them.awaitLatch("start")];
  expect(await latch.countDown()).toBe(2);
  await them.countDown("start");
  expect(await latch.count()).toBe(1);
  expect(await latch.countDown()).toBe(0);
  await Promise.all([mine, yours]);
  expect(await command(server.port, "EXISTS start")).toBe(":0\r\n");
  // They set it, and they open it: with another count than this program was told.
  expect(await them.trySetCount("start", 2)).toBe(1);
  const again = latch.wait();
  await sleep(100);
  await them.countDown("start");
  await them.countDown("start");
  await again;
  await latch.reset(2);
  const dropped = them.awaitLatch("start");
  await latch.reset();
  await dropped;
});

test("RCountDownLatch: a countdown that is sent twice counts once, also when others counted meanwhile", async () => {
  const engine = await engineOf();
  const them = speaker();
  await them.trySetCount("twice", 3);
  const cells = engine.latches;
  const write = { name: "twice", operation: "o1", expected: 3, value: '{"latch":{"left":2}}' };
  expect(await cells?.write(write)).toMatchObject({ kind: "written", cell: { version: 2 } });
  expect(await cells?.write(write)).toMatchObject({ kind: "written", cell: { version: 2 } });
  const late = { ...write, operation: "o2" };
  expect(await cells?.write(late)).toMatchObject({ kind: "conflict", cell: { version: 2 } });
  await command(server.port, "SET twice 3");
  expect(await cells?.write(late)).toMatchObject({ kind: "conflict" });
  expect(await them.count("twice")).toBe(3);
  await command(server.port, "SET twice word");
  await expect(cells?.read("twice")).rejects.toBeInstanceOf(UnsupportedError);
});

test("latches without pushes are polled", async () => {
  const locks = await locksOn(server.url, { layout: "redisson", wake: "poll" });
  expect(locks.guarantees.wake).toBe("poll");
  const them = speaker();
  await them.trySetCount("polled", 1);
  const waiting = locks.latch("polled", 1).wait();
  await sleep(100);
  await them.countDown("polled");
  await waiting;
});

test.each(layouts)("what the %s layout cannot do is refused by name", async (layout) => {
  const locks = await locksOf(layout);
  await expect(locks.semaphore("s", 2).acquire()).rejects.toThrow(new RegExp(`the ${layout} layout has no`));
  await expect(locks.readWrite("rw").read.acquire()).rejects.toBeInstanceOf(UnsupportedError);
  expect(() => locks.counter("c")).toThrow(UnsupportedError);
  await expect(locksOn(server.url, { layout, ack: 1 })).rejects.toBeInstanceOf(UnsupportedError);
  await expect((await engineOf(layout)).claim(claimOf("u", { reserve: 1 }))).rejects.toThrow(
    /tokens that a claim keeps/,
  );
  const prefixed = new Redis(server.port, { keyPrefix: "app:" });
  onTestFinished(() => prefixed.disconnect());
  await expect(redisEngine(prefixed, { layout })).rejects.toThrow(/"app:" before every key/);
  // An election keeps its records in cells, which it does without.
  const term = await locks.election(`${layout}:leader`).campaign();
  await term.resign();
});

test("a name that is in use as an RReadWriteLock is busy, and stays as it is", async () => {
  const engine = await engineOf();
  await command(server.port, "HSET rw mode read uuid:1 1");
  expect((await engine.claim(claimOf("rw"))).kind).toBe("busy");
  expect(await engine.release(claimOf("rw"))).toBe("gone");
  expect(await command(server.port, "HLEN rw")).toBe(":2\r\n");
});

test("a reader's heartbeat by Redisson's layout cuts the lease of another reader, which is why read-write locks are refused", async () => {
  const redis = redisOn(server.port);
  // Two readers, each with a timeout key of its own; the first has 60 s.
  await redis.hset("readers", { mode: "read", "a:1": 1, "b:1": 1 });
  await redis.set("{readers}:a:1:rwlock_timeout:1", 1, "PX", 60_000);
  await redis.set("{readers}:b:1:rwlock_timeout:1", 1, "PX", 30_000);
  await redis.pexpire("readers", 60_000);
  const heartbeat = `
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
    for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
      redis.call('PEXPIRE', '{' .. KEYS[1] .. '}:' .. field .. ':rwlock_timeout:1', ARGV[1])
    end`;
  await redis.eval(heartbeat, 1, "readers", 30_000);
  for (const key of ["readers", "{readers}:a:1:rwlock_timeout:1"])
    expect(await redis.pttl(key)).toBeLessThanOrEqual(30_000);
});

test("in a Cluster both layouts and latches keep everything of a name in one slot, and say that others are not heard", async () => {
  const cluster = await startCluster();
  try {
    for (const layout of layouts) {
      const engine = await engineOn(cluster.url, { layout });
      expect(engine.guarantees.wake).toBe("poll");
      for (const name of ["x", "{tag}x", "a{b}c"]) {
        const claim = claimOf(name);
        expect((await engine.claim(claim)).kind).toBe("granted");
        expect(await engine.release(claim)).toBe("released");
        expect((await engine.claim(claim)).kind).toBe("gone");
        const write = { name: `l${name}`, operation: layout, expected: 0, value: '{"latch":{"left":1}}' };
        expect(await engine.latches?.write(write)).toMatchObject({ kind: "written" });
        await engine.latches?.write({ ...write, operation: `${layout} open`, expected: 1, value: null });
      }
      await expect(engine.claim(claimOf("odd}"))).rejects.toBeInstanceOf(UnsupportedError);
      await engine[Symbol.asyncDispose]();
    }
    // Who listens to sharded channels, as Redisson does there, is told.
    const heard: string[] = [];
    const listeners = cluster.servers.map((one) => new Redis(one.port));
    for (const listener of listeners) {
      listener.on("smessage", (channel: string, message: string) => heard.push(`${channel} ${message}`));
      await listener.ssubscribe("redisson_lock__channel:{sharded}").catch(() => {});
    }
    const engine = await engineOn(cluster.url, { layout: "redisson" });
    const claim = claimOf("sharded");
    await engine.claim(claim);
    await engine.release(claim);
    await until("it was heard", () => heard.length === 1);
    expect(heard).toEqual(["redisson_lock__channel:{sharded} 0"]);
    for (const listener of listeners) listener.disconnect();
    await engine[Symbol.asyncDispose]();
  } finally {
    await cluster.stop();
  }
}, 60_000);

test("a memory that is full refuses claims, and no release", async () => {
  const full = await ownServer();
  const engine = closing(await redisEngine(redisOn(full.port), { layout: "redisson-fenced" }));
  const claim = claimOf("full");
  await engine.claim(claim);
  await command(full.port, "CONFIG SET maxmemory 1");
  expect(await engine.release(claim)).toBe("released");
  await expect(engine.claim(claimOf("full"))).rejects.toThrow(/OOM|memory/i);
});

function redisOn(port: number): Redis {
  const redis = new Redis(port);
  onTestFinished(() => redis.disconnect());
  return redis;
}
