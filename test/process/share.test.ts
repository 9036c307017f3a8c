import { expect, test } from "vitest";
import { PAIRS, runPairs } from "../../lab/share/pairs.js";
import { nodeRedisson } from "../servers/redisson.js";

test("a counter under a shared lock is exact with each other program, and both sides get it", {
  timeout: 240_000,
}, async () => {
  await nodeRedisson();
  // Some of them: each pair keeps a core busy. `npm run share` has them all.
  const programs = new Set(["node-redisson 1.0.4", "RFencedLock by layout", "redis-py 4", "Kazoo 2.8 Lock"]);
  const pairs = PAIRS.filter(({ program }) => programs.has(program));
  const results = await runPairs(2000, programs.size, () => {}, pairs);
  expect(results).toHaveLength(programs.size);
  expect(results.filter(({ exact, ours, theirs }) => !exact || ours === 0 || theirs === 0)).toEqual([]);
});
