import { describe, expect, test, vi } from "vitest";
import * as errors from "../../src/core/errors.js";

/** A second copy of the module, as when two versions of the package are installed. */
async function secondCopy(): Promise<typeof errors> {
  vi.resetModules();
  return import("../../src/core/errors.js");
}

describe("errors", () => {
  test("instanceof holds between two copies of the package, and tells classes apart", async () => {
    const copy = await secondCopy();
    expect(copy.LockLostError).not.toBe(errors.LockLostError);
    const lost = new copy.LockLostError("m", 5, "deadline");
    expect(lost).toBeInstanceOf(errors.LockLostError);
    expect(lost).toBeInstanceOf(errors.HoldfastError);
    expect(lost).not.toBeInstanceOf(errors.NotHeldError);
    expect(new Error("plain")).not.toBeInstanceOf(errors.HoldfastError);
    expect({ code: "HOLDFAST_LOCK_LOST" }).not.toBeInstanceOf(errors.LockLostError);
    for (const value of [null, undefined, 5, "x"]) expect(value).not.toBeInstanceOf(errors.HoldfastError);
  });

  test("an error has its code, name, facts and cause", () => {
    const cause = new Error("ECONNREFUSED.");
    const error = new errors.EngineUnavailableError("redis", 'acquiring "m"', cause);
    expect(error).toMatchObject({
      code: "HOLDFAST_ENGINE_UNAVAILABLE",
      name: "EngineUnavailableError",
      engine: "redis",
      cause,
    });
    expect(error.message).toBe(
      'redis did not answer while acquiring "m": ECONNREFUSED. Check that the store can be reached.',
    );
    expect(error.stack).toContain("errors.test.ts");
  });
});
