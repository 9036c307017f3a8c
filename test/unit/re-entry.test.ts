import { describe, expect, test } from "vitest";
import { LockLostError, MisuseError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, watch } from "./rig.js";

describe("re-entry", () => {
  test("pitfall 9: re-entry counts on the hold, keeps the token, touches no store, and is refused when the hold is dead", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const mutex = a.locks.mutex("m");
    await mutex.using(async (outer) => {
      await a.locks.mutex("m").using(async (inner) => {
        expect(inner.token).toBe(outer.token);
        expect(inner.id).toBe(outer.id);
        const third = await mutex.tryAcquire();
        expect(third?.token).toBe(outer.token);
        await third?.release();
        expect(third?.state).toBe("released");
      });
      expect(outer.state).toBe("held");
      expect(a.calls).toEqual({ claim: 1, release: 0, renew: 0, resize: 0 });
    });
    expect(a.calls.release).toBe(1);

    const outside = await mutex.acquire();
    const inside = await mutex.acquire({ within: outside });
    await outside.release();
    expect(inside.state).toBe("held");
    expect(await mutex.isHeld()).toBe(true);
    await expect(mutex.acquire({ within: outside })).rejects.toThrow(/not held any more/);
    await inside.release();
    expect(await mutex.isHeld()).toBe(false);

    const doomed = watch(
      mutex.using(async (hold) => {
        a.hooks.renew = () => never();
        clock.stall(4000);
        await expect(mutex.acquire()).rejects.toBeInstanceOf(LockLostError);
        await expect(mutex.acquire({ within: hold })).rejects.toBeInstanceOf(LockLostError);
      }),
    );
    await clock.advance(10);
    expect(doomed.error).toBeInstanceOf(LockLostError);
  });

  test("work that outlives its callback finds the hold gone and takes the lock like anybody else", async () => {
    const { clock, open } = rig();
    const a = await open();
    const mutex = a.locks.mutex("m");
    let late: Promise<void> | undefined;
    await mutex.using((outer) => {
      late = new Promise<void>((resolve) => setImmediate(resolve)).then(async () => {
        const own = await mutex.acquire();
        expect(own.token).toBeGreaterThan(outer.token);
        await own.release();
      });
    });
    await clock.advance(10);
    await late;
  });

  test("a foreign hold, or none, cannot be re-entered", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    await expect(b.locks.mutex("m").acquire({ within: hold })).rejects.toBeInstanceOf(MisuseError);
    await expect(a.locks.mutex("other").acquire({ within: hold })).rejects.toThrow(/a hold of "m", not of "other"/);
    await expect(a.locks.mutex("m").acquire({ within: {} as never })).rejects.toBeInstanceOf(MisuseError);
    await hold.release();
  });

  test("after a loss, work that was started inside the callback can take the lock again", async () => {
    const { clock, open } = rig();
    const a = await open();
    const mutex = a.locks.mutex("job");
    let later: () => Promise<unknown> = async () => {};
    const run = watch(
      mutex.using(async () => {
        // What `setTimeout(tick, 1000)` inside a callback does: the next tick runs in this async context.
        const { AsyncResource } = await import("node:async_hooks");
        const here = new AsyncResource("tick");
        later = () => here.runInAsyncScope(() => mutex.using(() => "ran"));
        a.hooks.renew = () => Promise.reject(new Error("away"));
        await clock.advance(11_000);
      }),
    );
    await clock.advance(20_000);
    await settle();
    expect(run.error).toBeInstanceOf(LockLostError);
    delete a.hooks.renew;
    await clock.advance(60_000);
    await expect(later()).resolves.toBe("ran");
  });

  test("a lost hold is not taken again from inside another lock either", async () => {
    const { clock, open } = rig();
    const a = await open();
    const work = async (): Promise<void> => {
      a.hooks.renew = () => Promise.reject(new Error("away"));
      await clock.advance(11_000);
      delete a.hooks.renew;
      await a.locks.mutex("other").using(() => a.locks.mutex("m").using(() => expect.unreachable()));
    };
    await expect(a.locks.mutex("m").using(work)).rejects.toBeInstanceOf(LockLostError);
  });

  test("re-entry obeys an aborted signal", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const aborted = AbortSignal.abort(new Error("stop"));
    await expect(a.locks.mutex("m").acquire({ within: hold, signal: aborted })).rejects.toThrow("stop");
  });

  test("re-entry refuses an id and a fence of its own", async () => {
    const { open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const id = "an-id-written-down-before-asking";
    const again = await a.locks
      .mutex("m")
      .acquire({ within: hold, id, fence: "exact" })
      .catch(() => null);
    expect([null, id]).toContain(again?.id ?? null);
  });
});
