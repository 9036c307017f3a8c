import { expect, test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { virtual } from "../virtual/redis.js";

test("in virtual time Redis answers what the reference answers", async () => {
  const { setting, close } = await virtual();
  try {
    const { requests } = await compareWithReference({ ...setting, runs: 60 });
    expect(requests).toBeGreaterThan(1000);
  } finally {
    await close();
  }
});
