import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { CapacityAnswer } from "../../src/core/engine.js";
import { ClosedError, LockLostError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";
import { never, rig, types, watch } from "./rig.js";

describe("closing", () => {
  test("close releases all holds, withdraws all waits, and leaves no timer", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    const held = await a.locks.mutex("m").acquire();
    await a.locks.readWrite("rw").write.acquire();
    const waiting = watch(b.locks.mutex("m").acquire());
    const own = watch(a.locks.mutex("m").acquire());
    await settle();
    const closing = a.locks.close();
    await settle();
    await closing;
    expect(own.error).toBeInstanceOf(ClosedError);
    // Given back under the hands of whoever works under it: to them it is a loss.
    expect(held.state).toBe("lost");
    expect(held.signal.reason).toMatchObject({ reason: "closed" });
    await expect(held.release()).rejects.toMatchObject({ reason: "closed" });
    expect(waiting.state).toBe("done");
    await waiting.value?.release();
    await b.locks.close();
    await settle();
    expect(store.size.claims).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("close is bounded when the store does not answer, says what is left, and still leaves no timer", async () => {
    const { clock, open } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    const asking = watch(a.locks.mutex("n").acquire());
    await settle();
    a.hooks.release = () => never();
    const closing = watch(a.locks.close());
    const released = watch(hold.release());
    await clock.advance(1100);
    expect(closing.state).toBe("done");
    expect(released.error).toBeInstanceOf(LockLostError);
    expect(asking.state).toBe("done");
    expect(types(a.told)).toContain("warning");
    expect(clock.pending).toBe(0);
  });

  test("close during a pause between two rounds ends the wait", async () => {
    const { clock, open } = rig();
    const a = await open();
    a.hooks.claim = async () => ({ kind: "busy" });
    const asked = watch(a.locks.mutex("m").acquire());
    await settle();
    await a.locks.close();
    expect(asked.error).toBeInstanceOf(ClosedError);
    expect(clock.pending).toBe(0);
  });

  test("a program that closed its locks exits by itself", async () => {
    const program = `
      import { connect } from "./dist/index.js";
      const locks = await connect("memory:");
      await locks.mutex("a").acquire();
      await locks.semaphore("b", 2).acquire({ leaseMs: 60_000, waitMs: 100_000 });
      locks.mutex("a").acquire().catch(() => {});
      await locks.close();
      console.log("closed");
    `;
    const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { timeout: 45_000 });
    expect((await run).stdout).toBe("closed\n");
  });

  test("after close everything is refused, and closing twice is the same close", async () => {
    const { open } = rig();
    const { locks, calls } = await open();
    const mutex = locks.mutex("m");
    await locks.close();
    await locks.close();
    await expect(mutex.acquire()).rejects.toBeInstanceOf(ClosedError);
    await expect(mutex.tryAcquire()).rejects.toThrow(/closed.*[Cc]onnect again/);
    await expect(mutex.isHeld()).rejects.toBeInstanceOf(ClosedError);
    await expect(locks.semaphore("s", 2).resize(3)).rejects.toBeInstanceOf(ClosedError);
    expect(() => locks.inspect()).toThrow(ClosedError);
    expect(calls.claim).toBe(0);
  });

  test("close() from inside the `queued` event starts no timer and no renewal", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const hold = await a.locks.mutex("m").acquire();
    b.locks.on("queued", () => void b.locks.close());
    await expect(b.locks.mutex("m").acquire()).rejects.toBeInstanceOf(ClosedError);
    await b.locks.close();
    await hold.release();
    await a.locks.close();
    expect(clock.pending).toBe(0);
    await clock.advance(60_000);
    expect(b.calls.renew).toBe(0);
  });

  test("asking anew from inside `lost` while close() runs is refused", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const mutex = a.locks.mutex("m");
    await mutex.acquire();
    a.locks.on("lost", () => void mutex.acquire().catch(() => {}));
    clock.stall(11_000); // nothing ran; close() is the first to look at the clock
    await a.locks.close();
    await settle();
    expect(store.size.claims).toBe(0);
    expect(clock.pending).toBe(0);
  });

  test("a hold that is released from inside `lost` while close() runs is released, not lost, and once", async () => {
    const { open } = rig();
    const a = await open();
    await a.locks.mutex("one").acquire();
    const two = await a.locks.mutex("two").acquire();
    const released: Promise<void>[] = [];
    a.locks.on("lost", () => released.push(two.release()));
    await a.locks.close();
    await Promise.all(released);
    expect(a.told.filter(({ type }) => type === "lost")).toMatchObject([{ name: "one" }]);
    expect([two.state, a.calls.release]).toEqual(["released", 2]);
  });

  test("acquire() on a client that closes in the same moment does not resolve with a released hold", async () => {
    const { open } = rig();
    const a = await open();
    let ran = false;
    a.locks.on("granted", () => void a.locks.close());
    await expect(a.locks.mutex("m").using(() => void (ran = true))).rejects.toThrow();
    expect(ran).toBe(false);
  });

  test("close() in the middle of a callback aborts its signal before others come in", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    let finish: () => void = () => {};
    let signal: AbortSignal | undefined;
    const run = watch(
      a.locks.mutex("m").using((hold) => {
        signal = hold.signal;
        return new Promise<void>((resolve) => (finish = resolve));
      }),
    );
    await settle();
    await a.locks.close();
    expect(await b.locks.mutex("m").tryAcquire()).not.toBeNull();
    expect.soft(signal?.aborted).toBe(true);
    finish();
    await settle();
    expect(run.state).toBe("failed"); // half of the work was done without the lock
  });

  test("a withdrawal under way when close() ends starts no timer and tells no event afterwards", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open({ callTimeoutMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    const controller = new AbortController();
    const asked = watch(b.locks.mutex("m").acquire({ signal: controller.signal }));
    await settle();
    b.hooks.release = () => never();
    controller.abort();
    await clock.advance(400); // withdrawing; that call times out at 1000 and is sent again
    expect(asked.state).toBe("failed");
    await hold.release();
    await a.locks.close();
    const closing = watch(b.locks.close());
    await clock.advance(1000);
    expect(closing.state).toBe("done");
    const told = b.told.length;
    expect.soft(clock.pending).toBe(0);
    await clock.advance(5000);
    expect(b.told.slice(told)).toEqual([]);
  });

  test("a call under way when the client closes says that it was closed", async () => {
    const { clock, engine } = rig();
    const locks = await connect({ ...intercept(engine(), {}), setCapacity: () => never<CapacityAnswer>() }, { clock });
    const resizing = watch(locks.semaphore("s", 3).resize(2));
    await settle();
    await locks.close();
    await clock.advance(2000);
    expect(resizing.error).toBeInstanceOf(ClosedError);
  });

  test("a grant that is answered in the same turn as close(), at any microtask, is given back or usable", async () => {
    for (let turns = 0; turns < 25; turns += 1) {
      const { open, store } = rig();
      const a = await open();
      a.hooks.claim = async (call) => {
        const answer = await call();
        void (async () => {
          for (let n = 0; n < turns; n += 1) await Promise.resolve();
          await a.locks.close();
        })();
        return answer;
      };
      const asked = watch(a.locks.mutex("m").acquire());
      await settle();
      await settle();
      expect(store.size.claims).toBe(0);
      expect(asked.state).not.toBe("pending");
    }
  });
});
