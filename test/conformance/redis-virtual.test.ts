import { expect, test } from "vitest";
import { redisEngine } from "../../src/engines/redis/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { compareCells } from "../virtual/cells.js";
import {
  cellsAreForgotten,
  heldIsWrittenAgain,
  namesAreKept,
  tombstonesAreCleared,
  tombstonesLast,
} from "../virtual/redis/forgotten.js";
import { raisedStandInOrder } from "../virtual/redis/raises.js";
import { compareTicks } from "../virtual/redis/ticks.js";
import { virtual, virtualRedis } from "../virtual/redis.js";
import { handedOverWithItsFence, waitersCount, waitersKnowTheEnd } from "../virtual/waiters.js";
import { deadWaiterIsNotTheFirst, deadWaiterIsNotTold, deadWaiterIsPassedOver } from "./dead-waiter.js";
import { overAtItsEnd } from "./lease-end.js";

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
  "a release lets in the first waiter that lives, and tells it its fence; a lease is over at its very end",
  async () => {
    const { setting, close } = await virtual();
    try {
      await deadWaiterIsPassedOver(setting);
      await handedOverWithItsFence(setting);
      await overAtItsEnd(setting);
    } finally {
      await close();
    }
  },
  LIMIT_MS,
);

test(
  "a dead waiter is gone, and is not told that a lowered capacity dropped it; the first that lives knows when to ask again",
  async () => {
    const { setting, close } = await virtual();
    try {
      await deadWaiterIsNotTold(setting);
      await deadWaiterIsNotTheFirst(setting);
      await waitersCount(setting);
      await waitersKnowTheEnd(setting, Date.now() % 1_000_000);
    } finally {
      await close();
    }
  },
  LIMIT_MS,
);

test(
  "in virtual time cells keep their rules, what is long over is forgotten, and what is not is kept",
  async () => {
    const world = await virtualRedis();
    try {
      const { clock } = world;
      const shared = await world.client();
      const seed = Date.now() % 1_000_000;
      // Where a removed name is soon forgotten, the time alone makes its next version a new one.
      for (const idleMs of [1, 600_000]) {
        const engine = () => redisEngine(shared, { idleMs });
        expect(await compareCells({ engine, clock, seed: seed + idleMs, runs: 5, commands: 100 })).toBe(500);
      }
      await cellsAreForgotten(world);
      await namesAreKept(world);
      await tombstonesLast(world);
      await tombstonesAreCleared(world);
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);

test(
  "with ack what is held is written again whenever it is asked for, though nothing changes",
  async () => {
    const world = await virtualRedis();
    try {
      await heldIsWrittenAgain(world);
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);

test(
  "what is asked in one tick is answered as if it had been asked one after the other",
  async () => {
    const world = await virtualRedis();
    try {
      await compareTicks(world, Date.now() % 1_000_000, 1500);
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);

test(
  "holders whose tokens are raised stand in the order of their tokens",
  async () => {
    const world = await virtualRedis();
    try {
      await raisedStandInOrder(world, Date.now() % 1_000_000);
    } finally {
      await world.close();
    }
  },
  LIMIT_MS,
);
