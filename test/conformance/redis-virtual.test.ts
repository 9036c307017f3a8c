import { test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { virtual } from "../virtual/redis.js";

test("in virtual time Redis answers what the reference answers", async () => {
  const { setting, close } = await virtual();
  try {
    await compareWithReference({ ...setting, runs: 60, maxCommands: 100 });
  } finally {
    await close();
  }
});
