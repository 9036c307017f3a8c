import { expect, test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { virtual } from "../virtual/redis.js";
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
