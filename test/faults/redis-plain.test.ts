import { execFile } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { UnsupportedError } from "../../src/core/errors.js";
import { until } from "../servers/process.js";
import { command, type RedisServer, redisPython, startCluster, startRedis } from "../servers/redis.js";
import { claimOf, engineOn, locksOn } from "./redis-rig.js";

let server: RedisServer;
beforeAll(async () => void (server = await startRedis()), 60_000);
afterAll(() => server?.running.stop());

const plain = () => locksOn(server.url, { layout: "plain" });

test("A1: a plain lock is SET NX PX at exactly its name, and compared before it is deleted", async () => {
  const locks = await plain();
  expect(locks.guarantees).toMatchObject({ order: "none", token: "monotonic-if-clocks" });
  const hold = await locks.mutex("plain:a").acquire({ leaseMs: 5000 });
  expect(await command(server.port, "GET plain:a")).toContain(`${hold.id}:${hold.token}`);
  expect(await command(server.port, "SET plain:a other NX PX 1000")).toBe("$-1\r\n");
  expect(await locks.mutex("plain:a").isHeld()).toBe(true);
  await hold.release();
  expect(await command(server.port, "EXISTS plain:a")).toBe(":0\r\n");

  const next = await locks.mutex("plain:a").acquire();
  expect(next.token).toBeGreaterThan(hold.token);
  await command(server.port, "SET plain:a other");
  await expect(next.release()).rejects.toThrow(/lost/);
  expect(await command(server.port, "GET plain:a")).toContain("other");
  expect(await locks.mutex("plain:a").tryAcquire()).toBeNull();
  expect(await locks.mutex("plain:a").holders()).toMatchObject([{ owner: { client: "other" } }]);
});

test("who waits for a plain lock is woken by ours, and finds out by asking about others'", async () => {
  const [a, b] = [await plain(), await plain()];
  const hold = await a.mutex("plain:wake").acquire();
  const waiting = b.mutex("plain:wake").acquire();
  await sleep(200);
  await hold.release();
  await (await waiting).release();
  await command(server.port, "SET plain:wake other PX 500");
  await (await b.mutex("plain:wake").acquire({ waitMs: 10_000 })).release();
});

test("a plain lock is renewed, extended, and lost when somebody deletes it", async () => {
  const locks = await plain();
  const hold = await locks.mutex("plain:r").acquire({ leaseMs: 3000 });
  let renewals = 0;
  locks.on("renewed", () => (renewals += 1));
  await until("it was renewed for longer than its lease", () => renewals >= 4);
  hold.throwIfLost();
  await command(server.port, "DEL plain:r");
  await until("it is lost", () => hold.state === "lost");
  const fixed = await locks.mutex("plain:r").acquire({ leaseMs: 10_000, renew: false });
  await fixed.extend(60_000);
  expect(fixed.remainingMs).toBeGreaterThan(15_000);
  await fixed.release();
});

test("pitfall 54: a late copy of a plain claim is gone, and claims asked again take once", async () => {
  const engine = await engineOn(server.url, { layout: "plain" });
  const claim = claimOf("plain:late");
  const first = await engine.claim(claim);
  expect(first).toMatchObject({ kind: "granted", leftMs: 10_000 });
  expect(await engine.claim(claim)).toMatchObject({ token: (first as { token: number }).token });
  expect(await engine.release(claim)).toBe("released");
  expect((await engine.claim(claim)).kind).toBe("gone");
  expect(await engine.release(claim)).toBe("revoked");
});

test("a plain lock that somebody released by force tells its holder so; one that was deleted or ended is gone", async () => {
  const [engine, other] = [
    await engineOn(server.url, { layout: "plain" }),
    await engineOn(server.url, { layout: "plain" }),
  ];
  const [forced, deleted] = [claimOf("plain:forced"), claimOf("plain:deleted")];
  for (const claim of [forced, deleted]) await engine.claim(claim);
  expect(await other.release(forced)).toBe("released");
  await command(server.port, "DEL plain:deleted");
  expect(await engine.renew([forced, deleted])).toEqual([{ kind: "gone", revoked: true }, { kind: "gone" }]);
  expect(await engine.release({ ...forced, tombstone: "never" })).toBe("revoked");
  expect(await engine.release({ ...deleted, tombstone: "never" })).toBe("gone");
});

test("a plain lock that is gone is told so at once, also where nobody can say by whom", async () => {
  await command(server.port, "ACL SETUSER blind on >secret ~* &* +@all");
  const blind = await engineOn(`redis://blind:secret@127.0.0.1:${server.port}`, { layout: "plain" });
  const other = await engineOn(server.url, { layout: "plain" });
  const claim = claimOf("plain:blind");
  expect((await blind.claim(claim)).kind).toBe("granted");
  expect(await other.release(claim)).toBe("released");
  // The tombstone cannot be read any more.
  await command(server.port, "ACL SETUSER blind -exists");
  expect(await blind.renew([claim])).toEqual([{ kind: "gone" }]);
});

test("what the plain layout cannot do is refused by name", async () => {
  const locks = await plain();
  await expect(locks.semaphore("plain:s", 2).acquire()).rejects.toBeInstanceOf(UnsupportedError);
  await expect(locks.readWrite("plain:rw").read.acquire()).rejects.toThrow(/plain layout/);
  await expect(locksOn(server.url, { layout: "plain", ack: 1 })).rejects.toBeInstanceOf(UnsupportedError);
  const engine = await engineOn(server.url, { layout: "plain" });
  await expect(engine.claim(claimOf("plain:u", { reserve: 1 }))).rejects.toThrow(/tokens that a claim keeps/);
});

test("a plain lock works in a Cluster, its tombstone in the same slot", async () => {
  const cluster = await startCluster();
  try {
    const engine = await engineOn(cluster.url, { layout: "plain" });
    for (const name of ["x", "{tag}x", "a{b}c"]) {
      const claim = claimOf(name);
      expect((await engine.claim(claim)).kind).toBe("granted");
      expect(await engine.release(claim)).toBe("released");
      expect((await engine.claim(claim)).kind).toBe("gone");
    }
    for (const name of ["odd}", "{}x", "a{}b{c}d"]) {
      await expect(engine.claim(claimOf(name))).rejects.toBeInstanceOf(UnsupportedError);
    }
    const tagged = await engineOn(cluster.url, { layout: "plain", prefix: "app{1}:" });
    const claim = claimOf("a prefix with braces");
    expect((await tagged.claim(claim)).kind).toBe("granted");
    expect(await tagged.release(claim)).toBe("released");
    for (const one of [engine, tagged]) await one[Symbol.asyncDispose]();
  } finally {
    await cluster.stop();
  }
}, 60_000);

test("A1: redis-py's Lock excludes ours and is excluded by it", async () => {
  const python = redisPython();
  const run = async (code: string): Promise<string> => {
    const text = `import redis\nr = redis.Redis(port=${server.port})\n${code}`;
    return (await promisify(execFile)(python, ["-c", text], { timeout: 20_000 })).stdout.trim();
  };
  const locks = await plain();
  const hold = await locks.mutex("shared").acquire();
  expect(await run("print(r.lock('shared', timeout=5).acquire(blocking=False))")).toBe("False");
  await hold.release();
  expect(await run("lock = r.lock('shared', timeout=30)\nprint(lock.acquire(blocking=False))")).toBe("True");
  expect(await locks.mutex("shared").tryAcquire()).toBeNull();
  await command(server.port, "DEL shared");
  // It releases by comparing, so ours survives a late release of theirs, and the other way round.
  const theirs = run(
    "lock = r.lock('shared', timeout=0.5)\nlock.acquire()\nimport time\ntime.sleep(2)\ntry:\n  lock.release()\n  print('released')\nexcept redis.exceptions.LockError:\n  print('refused')",
  );
  await until("they hold it", async () => (await command(server.port, "EXISTS shared")) === ":1\r\n");
  const next = await locks.mutex("shared").acquire({ waitMs: 10_000 });
  expect(await theirs).toBe("refused");
  next.throwIfLost();
  await next.release();
}, 60_000);
