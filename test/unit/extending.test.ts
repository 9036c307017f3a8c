import { describe, expect, test } from "vitest";
import { LockLostError } from "../../src/core/errors.js";
import { never, rig, types, watch } from "./rig.js";

describe("fixed leases and extending", () => {
  test("an extension never shortens a lease, and is refused on a renewed hold", async () => {
    const { open } = rig();
    const a = await open();
    const fixed = await a.locks.mutex("fixed").acquire({ leaseMs: 60_000, renew: false });
    const before = fixed.remainingMs;
    await fixed.extend(1000);
    expect(fixed.remainingMs).toBe(before);
    const renewed = await a.locks.mutex("renewed").acquire();
    await expect(renewed.extend(1000)).rejects.toThrow(/renew: false/);
    await fixed.release();
    await renewed.release();
  });

  test("a fixed lease is not renewed, knows no jeopardy and ends by itself", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false });
    await clock.advance(980);
    expect(hold.state).toBe("held");
    expect(a.calls.renew).toBe(0);
    await clock.advance(10);
    expect(hold.state).toBe("lost");
    expect(types(a.told)).not.toContain("jeopardy");
  });

  test("extending a lost hold says that it is lost", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false });
    await clock.advance(1100);
    await expect(hold.extend(1000)).rejects.toBeInstanceOf(LockLostError);
    const failed = watch(hold.release());
    await clock.advance(0);
    expect(failed.error).toBeInstanceOf(LockLostError);
  });

  test("extend() without an answer ends with the loss of the hold", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ renew: false, leaseMs: 1000 });
    a.hooks.renew = () => never();
    const extending = watch(hold.extend(5000));
    await clock.advance(1100);
    expect.soft(hold.state).toBe("lost");
    expect.soft(extending.state).toBe("failed");
    await clock.advance(10_000);
    expect(extending.error).toBeInstanceOf(LockLostError);
  });
});
