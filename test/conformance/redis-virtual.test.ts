import { expect, test } from "vitest";
import { redisEngine } from "../../src/engines/redis/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { compareCells } from "../virtual/cells.js";
import { virtual, virtualRedis } from "../virtual/redis.js";
import { deadWaiterIsNotTold } from "./dead-waiter.js";

/** Of seconds of work, on a machine that is busy with other things. */
const LIMIT_MS = 180_000;

test(
  "in virtual time Redis answers what the reference answers",
  async () => {
    const { setting, close } = await virtual();
    try {
      let requests = 0;
      await compareWithReference({ ...setting, runs: 60, onCompared: (count) => (requests = count) });
      expect(requests).toBeGreaterThan(1000);
    } finally {
      await close();
    }
  },
  LIMIT_MS,
);

test(
  "a dead waiter is not told that a lowered capacity dropped it",
  async () => {
    const { setting, close } = await virtual();
    try {
      await deadWaiterIsNotTold(setting);
    } finally {
      await close();
    }
  },
  LIMIT_MS,
);

test(
  "in virtual time cells keep their rules, and forget what is long over",
  async () => {
    const { clock, client, redis, close } = await virtualRedis();
    try {
      const shared = await client();
      const engine = (idleMs: number) => () => redisEngine(shared, { idleMs });
      const seed = Date.now() % 1_000_000;
      // Where a removed name is soon forgotten, the time alone makes its next version a new one.
      for (const idleMs of [1, 600_000])
        await compareCells({ engine: engine(idleMs), clock, seed: seed + idleMs, runs: 10, commands: 100 });
      const one = await engine(1)();
      let expected = 0;
      const write = async (name: string, value: string | null): Promise<void> => {
        const { cell } = await one.cells!.write({ name, operation: `${name} ${clock.now()}`, expected, value });
        expected = cell.version;
        await clock.advance(1000);
      };
      for (let n = 0; n < 300; n += 1) await write("kept", "x");
      // Each second a write, each remembered for a minute in two fields, beside five of the cell itself.
      expect(await redis.hlen("holdfast:cell:kept")).toBeLessThan(2 * 62 + 6);
      expect(await redis.pttl("holdfast:cell:kept")).toBe(-1);
      await clock.advance(3_600_000);
      expect(await one.cells!.read("kept")).toMatchObject({ value: "x" });
      await write("kept", null);
      await clock.advance(60_000);
      expect(await redis.exists("holdfast:cell:kept")).toBe(0);
      expected = 5;
      await write("never", "x");
      await clock.advance(60_000);
      expect(await redis.exists("holdfast:cell:never")).toBe(0);
      await one[Symbol.asyncDispose]();
    } finally {
      await close();
    }
  },
  LIMIT_MS,
);
