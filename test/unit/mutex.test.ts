import { describe, expect, test } from "vitest";
import { LockLostError } from "../../src/core/errors.js";
import { rig, watch } from "./rig.js";

describe("mutex", () => {
  test("a callback's error wins over a loss, and a loss is told when the callback did not notice", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 1000 });
    const failing = watch(
      a.locks.mutex("m").using(() => {
        clock.stall(2000);
        throw new Error("mine");
      }),
    );
    await clock.advance(10);
    expect(failing.error).toEqual(new Error("mine"));
    const quiet = watch(a.locks.mutex("m").using(() => clock.stall(2000)));
    await clock.advance(3000);
    expect(quiet.error).toBeInstanceOf(LockLostError);
  });
});
