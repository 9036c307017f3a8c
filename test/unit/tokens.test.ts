import { describe, expect, test } from "vitest";
import { InvalidOptionError } from "../../src/core/errors.js";
import { rig } from "./rig.js";

describe("tokens", () => {
  test("both kinds of fence can be asked for by name, and no other", async () => {
    const { open } = rig();
    const { locks } = await open();
    for (const fence of ["floor", "exact"] as const) {
      const hold = await locks.mutex("m").acquire({ fence });
      expect(hold.live).toEqual(fence === "exact" ? [hold.token] : undefined);
      await hold.release();
    }
    const other = { fence: "none" } as unknown as { fence: "floor" };
    await expect(locks.mutex("m").acquire(other)).rejects.toBeInstanceOf(InvalidOptionError);
  });

  test("tokenBase is added to token, floor and what inspect shows", async () => {
    const { open } = rig();
    const plain = await open();
    const raised = await open({ tokenBase: 1000 });
    const hold = await raised.locks.mutex("m").acquire();
    const [holder] = await plain.locks.mutex("m").holders();
    expect(hold.token).toBe((holder?.token ?? 0) + 1000);
    expect(hold.floor).toBe(hold.token);
    expect((await raised.locks.mutex("m").holders())[0]?.token).toBe(hold.token);
    await hold.release();
  });

  test("pitfall 55: a shared grant carries the lowest live token, so that live permit holders are not fenced", async () => {
    const { open } = rig();
    const a = await open();
    const s = a.locks.semaphore("s", 3);
    const [one, two, three] = [await s.acquire(), await s.acquire(), await s.acquire({ fence: "exact" })];
    expect(one.token).toBeLessThan(two.token);
    expect(two.token).toBeLessThan(three.token);
    expect([one.floor, two.floor, three.floor]).toEqual([one.token, one.token, one.token]);
    expect(three.live).toEqual([one.token, two.token, three.token]);
    // A guard that has seen the floor of the newest grant still accepts the oldest.
    const guard = Math.max(one.floor, two.floor, three.floor);
    for (const hold of [one, two, three]) expect(hold.token).toBeGreaterThanOrEqual(guard);
    await one.release();
    const four = await s.acquire();
    expect(four.floor).toBe(two.token);
    expect(one.token).toBeLessThan(four.floor);
    await Promise.all([two, three, four].map((hold) => hold.release()));
  });

  test("a renewal tells the lowest live token, and all of them where they were asked for, as of then", async () => {
    const { clock, open } = rig();
    const a = await open();
    const s = a.locks.semaphore("s", 3);
    const [one, two, three] = [await s.acquire(), await s.acquire(), await s.acquire({ fence: "exact" })];
    await one.release();
    expect([two.floor, three.floor]).toEqual([one.token, one.token]);
    await clock.advance(10_000);
    expect([two.floor, three.floor]).toEqual([two.token, two.token]);
    expect(three.live).toEqual([two.token, three.token]);
    await two.release();
    await three.release();
  });

  test("tokens grow over grants, idle times and forgotten names, and stay the same on re-entry and extension", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    let last = 0;
    for (let n = 0; n < 20; n += 1) {
      const hold = await a.locks.mutex("m").acquire({ renew: false });
      expect(hold.token).toBeGreaterThan(last);
      last = hold.token;
      await hold.extend(20_000);
      expect(hold.token).toBe(last);
      await hold.release();
      expect(store.size.names).toBe(0);
      if (n === 10) clock.stepWall(-3_600_000);
    }
  });

  test("tokenBase cannot push tokens out of the safe integers", async () => {
    const { open } = rig();
    const tokens: number[] = [];
    const a = await open({ tokenBase: Number.MAX_SAFE_INTEGER }).catch((error: unknown) => {
      expect(error).toBeInstanceOf(InvalidOptionError);
      return null;
    });
    if (a === null) return;
    for (let n = 0; n < 4; n += 1) {
      const hold = await a.locks.mutex("m").acquire();
      tokens.push(hold.token);
      await hold.release();
    }
    expect.soft(tokens.every((token) => Number.isSafeInteger(token))).toBe(true);
    expect(new Set(tokens).size).toBe(4);
  });
});
