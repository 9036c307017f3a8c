import { expect, test } from "vitest";
import { FAST_PATHS } from "../virtual/redis.js";
import { compareFastPaths } from "../virtual/redis-paths.js";

test("every fast path of the Redis scripts does what the plain path does, while time passes", async () => {
  const seed = Number(process.env.SEED ?? Date.now() % 1_000_000);
  expect(await compareFastPaths({ without: FAST_PATHS, seed, runs: 20, commands: 60 })).toBeGreaterThan(1000);
});
