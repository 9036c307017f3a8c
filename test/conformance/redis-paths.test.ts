import { expect, onTestFinished, test } from "vitest";
import { redisEngine } from "../../src/engines/redis/index.js";
import { claimOf } from "../faults/redis-rig.js";
import { FAST_PATHS, virtualRedis } from "../virtual/redis.js";
import { compareFastPaths } from "../virtual/redis-paths.js";
import { comparePlainLayout } from "../virtual/redis-plain.js";

test("every fast path of the Redis scripts does what the plain path does, while time passes", async () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  expect(await compareFastPaths({ without: FAST_PATHS, seed, runs: 20, commands: 60 })).toBeGreaterThan(1000);
});

test("in virtual time the plain layout keeps its own rules", async () => {
  const seed = Date.now() % 1_000_000;
  expect(await comparePlainLayout({ seed, runs: 20, commands: 100 })).toBe(2000);
});

test("what is usual goes the fast path: it is answered where the plain one is missing", async () => {
  const { client, close } = await virtualRedis();
  onTestFinished(close);
  const edit = (_: string, text: string): string =>
    text.replace("-- include shared/name.lua", "error('no plain path')");
  const [fast, whole] = [await redisEngine(await client({ edit })), await redisEngine(await client())];
  const name = "usual";
  const [one, two, three, other] = [claimOf(name), claimOf(name), claimOf(name), claimOf(name)];
  await expect(fast.release(other)).rejects.toThrow("no plain path");
  // With marks and without.
  for (const marks of [false, true]) {
    const claim = claimOf(name);
    expect(await fast.claim(claim)).toMatchObject({ kind: "granted" });
    expect(await fast.renew([claim])).toMatchObject([{ kind: "granted" }]);
    expect(await fast.claim({ ...other, wait: false })).toMatchObject({ kind: marks ? "gone" : "busy" });
    expect(await fast.release({ ...claim, settled: true })).toBe("released");
    expect(await whole.release(other)).toBe(marks ? "revoked" : "gone");
    expect(await fast.claim(other)).toEqual({ kind: "gone" });
  }
  expect(await fast.claim(one)).toMatchObject({ kind: "granted" });
  expect(await whole.claim(two)).toMatchObject({ kind: "queued" });
  expect(await fast.claim(three)).toMatchObject({ kind: "queued" });
  expect(await fast.claim(other)).toEqual({ kind: "gone" });
  expect(await fast.release({ ...one, settled: true })).toBe("released");
  expect(await whole.renew([two])).toMatchObject([{ kind: "granted" }]);
  expect(await whole.release(two)).toBe("released");
});
