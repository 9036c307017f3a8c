import { expect, test } from "vitest";
import type { ClaimAnswer } from "../../src/core/engine.js";
import { redisEngine } from "../../src/engines/redis/index.js";
import { claimOf } from "../faults/rig.js";
import { compareFastPaths } from "../virtual/redis/paths.js";
import { compareSharedLayout } from "../virtual/redis/shared-layouts.js";
import { usual } from "../virtual/redis/usual.js";
import { FAST_PATHS, virtualRedis } from "../virtual/redis.js";

/** Of seconds of work, on a machine that is busy with other things. */
const LIMIT_MS = 180_000;

test(
  "every fast path of the Redis scripts does what the plain path does, while time passes",
  async () => {
    const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
    expect(await compareFastPaths({ without: FAST_PATHS, seed, runs: 20, commands: 60 })).toBeGreaterThan(1000);
  },
  LIMIT_MS,
);

test(
  "a server without a clock, where the time begins in 1970, gives the same answers and keeps its names",
  async () => {
    const world = await virtualRedis(10_000);
    try {
      const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
      await compareFastPaths({ without: FAST_PATHS, seed, runs: 10, commands: 60, world });
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);

test(
  "in virtual time the layouts that other programs share keep their own rules",
  async () => {
    const seed = Date.now() % 1_000_000;
    for (const layout of ["plain", "redisson", "redisson-fenced"] as const) {
      expect(await compareSharedLayout({ layout, seed, runs: 20, commands: 100 })).toBe(2000);
    }
  },
  LIMIT_MS,
);

test(
  "what is usual goes the fast path: it is answered where the plain one is missing",
  async () => {
    await usual();
  },
  LIMIT_MS,
);

test(
  "where nothing is pushed no claim is named as the one directly before: it may be another program's",
  async () => {
    const world = await virtualRedis();
    try {
      const aheadOf = (answer: ClaimAnswer): unknown =>
        answer.kind === "queued" ? (answer.ahead ?? null) : answer.kind;
      for (const without of [[], FAST_PATHS]) {
        const client = await world.client({ without });
        const name = `polled ${without.length}`;
        const polling = [await redisEngine(client, { wake: "poll" }), await redisEngine(client, { wake: "poll" })];
        const answers: unknown[] = [];
        for (let n = 0; n < 4; n += 1) {
          for (const engine of polling) answers.push(aheadOf(await engine.claim(claimOf(name))));
        }
        expect(answers).toEqual(["granted", ...Array.from({ length: 7 }, () => null)]);
        for (const engine of polling) await engine[Symbol.asyncDispose]();
      }
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);
