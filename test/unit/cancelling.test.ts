import { describe, expect, test } from "vitest";
import { AcquireTimeoutError, EngineUnavailableError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { rig, types, watch } from "./rig.js";

describe("cancelling a wait", () => {
  test("pitfall 17: a wait that times out or is aborted withdraws its claim, retrying, under a limit of its own", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const controller = new AbortController();
    const aborted = watch(b.locks.mutex("m").acquire({ signal: controller.signal }));
    const timed = watch(b.locks.mutex("m").acquire({ waitMs: 100 }));
    await clock.advance(50);
    expect(store.size.claims).toBe(3);
    let failures = 3;
    b.hooks.release = (call) => (failures-- > 0 ? Promise.reject(new Error("flaky")) : call());
    controller.abort(new Error("changed my mind"));
    await settle();
    expect(aborted.error).toEqual(new Error("changed my mind"));
    expect(types(b.told)).not.toContain("withdrawn");
    await clock.advance(1000);
    expect(timed.error).toBeInstanceOf(AcquireTimeoutError);
    expect(types(b.told).filter((type) => type === "withdrawn")).toHaveLength(2);
    expect(store.size.claims).toBe(1);
    await hold.release();
    expect(await a.locks.mutex("m").isHeld()).toBe(false);
  });

  test("a wait that times out leaves no tombstone where its claim was sent once and answered, and one otherwise", async () => {
    const { clock, open, store } = rig();
    const [a, b] = [await open(), await open()];
    const hold = await a.locks.mutex("m").acquire();
    await Promise.all([
      expect(b.locks.mutex("m").acquire({ waitMs: 100 })).rejects.toThrow(AcquireTimeoutError),
      clock.advance(200),
    ]);
    expect([store.size.claims, store.size.tombstones]).toEqual([1, 0]);
    b.hooks.claim = () => new Promise(() => {});
    await Promise.all([
      expect(b.locks.mutex("m").acquire({ waitMs: 100 })).rejects.toThrow(EngineUnavailableError),
      clock.advance(200),
    ]);
    expect([store.size.claims, store.size.tombstones]).toEqual([1, 1]);
    await hold.release();
  });

  test("pitfall 17: a grant that races with the abort is given back", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const controller = new AbortController();
    a.hooks.claim = async (call) => {
      const answer = await call();
      controller.abort(new Error("too late"));
      return answer;
    };
    await expect(a.locks.mutex("m").acquire({ signal: controller.signal })).rejects.toThrow("too late");
    await clock.advance(10);
    expect(store.size.claims).toBe(0);
  });

  test("leaving from inside the `queued` event leaves no waiter behind that is renewed", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    const controller = new AbortController();
    b.locks.on("queued", () => controller.abort(new Error("do not wait")));
    await expect(b.locks.mutex("m").acquire({ signal: controller.signal })).rejects.toThrow("do not wait");
    await clock.advance(60_000);
    const { renew } = b.calls;
    await clock.advance(60_000);
    expect(b.calls.renew - renew).toBe(0);
    await hold.release();
  });
});
