import { describe, expect, test } from "vitest";
import { LockLostError, NotHeldError } from "../../src/core/errors.js";
import type { Hold } from "../../src/core/hold.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, types, watch, wired } from "./rig.js";

type Ending = Awaited<ReturnType<typeof wired>> & { readonly hold: Hold };

describe("losing a hold", () => {
  test("pitfall 2: failing renewals feed the deadline; the holder is told before the store can pass the lock on", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const b = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    const signal = hold.signal;
    let told = 0;
    signal.addEventListener("abort", () => (told = clock.now()));
    a.hooks.renew = () => Promise.reject(new Error("connection refused"));
    a.hooks.release = () => Promise.reject(new Error("connection refused"));
    let granted = 0;
    void b.locks
      .mutex("m")
      .acquire()
      .then((next) => {
        granted = clock.now();
        return next.release();
      });
    await clock.advance(10_000);
    expect(signal.reason).toBeInstanceOf(LockLostError);
    expect((signal.reason as LockLostError).reason).toBe("deadline");
    expect(told).toBeGreaterThan(0);
    expect(told).toBeLessThan(granted);
    await expect(hold.release()).rejects.toBeInstanceOf(LockLostError);
  });

  test("pitfall 6: the signal aborts before the lease can end anywhere", async () => {
    const { clock, open, store } = rig();
    const a = await open({ leaseMs: 1000 });
    const hold = await a.locks.mutex("m").acquire({ renew: false });
    let heldInStore = false;
    hold.signal.addEventListener("abort", () => (heldInStore = store.size.claims === 1));
    a.hooks.release = () => never();
    await clock.advance(1000);
    expect(hold.signal.aborted).toBe(true);
    expect(heldInStore).toBe(true);
  });

  test("pitfall 8: lost is final; a later renewal does not revive the hold", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 1000 });
    const hold = await a.locks.mutex("m").acquire();
    let answerLate: (() => void) | undefined;
    a.hooks.renew = (call) => new Promise((resolve) => (answerLate ??= () => resolve(call())));
    a.hooks.release = () => never();
    await clock.advance(990);
    expect(hold.state).toBe("lost");
    answerLate?.();
    await settle();
    expect(hold.state).toBe("lost");
    expect(() => hold.throwIfLost()).toThrow(LockLostError);
    delete a.hooks.release;
    delete a.hooks.renew;
    await clock.advance(2000);
    const next = await a.locks.mutex("m").acquire();
    expect(next.id).not.toBe(hold.id);
    expect(next.token).toBeGreaterThan(hold.token);
    await next.release();
  });

  test("pitfall 8: an answer that arrives after the deadline, before the timer, is not believed", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = async (call) => {
      const answers = await call();
      clock.stall(3000);
      return answers;
    };
    await clock.advance(1000);
    expect(() => hold.throwIfLost()).toThrow(LockLostError);
    expect(hold.state).toBe("lost");
  });

  test("pitfall 10: after maxHoldMs renewal stops and the hold is lost, with that reason", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire({ maxHoldMs: 10_000 });
    await clock.advance(10_000);
    hold.throwIfLost();
    await clock.advance(3000);
    expect(hold.state).toBe("lost");
    expect((hold.signal.reason as LockLostError).reason).toBe("max-hold");
    expect(types(a.told).filter((type) => type === "lost")).toHaveLength(1);
  });

  test("pitfall 12: after a stalled event loop throwIfLost() is exact although no timer has run", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    const { signal } = hold;
    clock.stall(5000);
    expect(() => hold.throwIfLost()).toThrow(LockLostError);
    await clock.advance(0);
    expect(signal.aborted).toBe(true);
  });

  test("pitfall 64: the margin is taken from the time left, also after an extension", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false });
    expect(hold.remainingMs).toBe(1000 - 10 - 5);
    await hold.extend(100_000);
    expect(hold.remainingMs).toBe(100_000 - 1000 - 5);
    await clock.advance(98_990);
    hold.throwIfLost();
    await clock.advance(10);
    expect(() => hold.throwIfLost()).toThrow(LockLostError);
  });

  test("pitfall 66: gone as the first answer to a release is a loss; to a repeated one it proves nothing", async () => {
    const { clock, engine, open } = rig();
    const a = await open({ callTimeoutMs: 100 });
    const revoked = await a.locks.mutex("revoked").acquire();
    a.hooks.push = () => {};
    await engine().release({ name: "revoked", id: revoked.id });
    await expect(revoked.release()).rejects.toMatchObject({ reason: "revoked" });
    expect(revoked.state).toBe("lost");

    const lostAnswer = await a.locks.mutex("lost-answer").acquire();
    let first = true;
    a.hooks.release = async (call) => {
      const answer = await call();
      if (!first) return answer;
      first = false;
      throw new Error("connection reset");
    };
    const released = watch(lostAnswer.release());
    await clock.advance(1000);
    expect(released.state).toBe("done");
    expect(lostAnswer.state).toBe("released");
  });

  test("a pushed loss aborts at once", async () => {
    const { engine, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    await engine().release({ name: "m", id: hold.id });
    await settle();
    expect(hold.state).toBe("lost");
    expect((hold.signal.reason as LockLostError).reason).toBe("revoked");
  });

  test("a definite gone to a renewal ends the hold before its deadline", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = async (_call, requests) => requests.map(() => ({ kind: "gone" }));
    await clock.advance(1100);
    expect((hold.signal.reason as LockLostError).reason).toBe("gone");
  });

  test("a release by force is told as one, whichever message brings it: push, renewal, release, downgrade", async () => {
    const { clock, engine, open } = rig();
    const a = await open({ leaseMs: 3000 });
    a.hooks.push = () => {};
    const take = async (name: string) => {
      const hold = await a.locks.readWrite(name).write.acquire();
      await engine().release({ name, id: hold.id });
      return hold;
    };
    const renewed = await take("renewed");
    await clock.advance(1100);
    expect(renewed.signal.reason).toMatchObject({ reason: "revoked" });
    await expect((await take("released")).release()).rejects.toMatchObject({ reason: "revoked" });
    await expect((await take("downgraded")).downgrade()).rejects.toMatchObject({ reason: "revoked" });
    delete a.hooks.push;
    const pushed = await take("pushed");
    await settle();
    expect(pushed.signal.reason).toMatchObject({ reason: "revoked" });
  });

  test("a wake after maxHoldMs does not start the renewal again", async () => {
    const base = rig();
    const { clock } = base;
    const { locks, push } = await wired(base);
    const hold = await locks.mutex("m").acquire({ maxHoldMs: 5000 });
    await clock.advance(5001); // last renewal at 3.3 s: it must be lost at 13.2 s
    for (let n = 0; n < 8; n += 1) {
      push({ kind: "wake" });
      await clock.advance(1000);
    }
    expect(hold.state).toBe("jeopardy");
    await clock.advance(500);
    expect(hold.state).toBe("lost");
    await locks.close();
  });

  test("a released hold stays released when the answer to its downgrade comes late", async () => {
    // Refused, it asks why, and that answer may be late as well.
    for (const late of ["resize", "renew"] as const) {
      const { open } = rig();
      const a = await open();
      const hold = await a.locks.readWrite("rw").write.acquire();
      let arrive: () => void = () => {};
      const arriving = new Promise<void>((resolve) => (arrive = resolve));
      if (late === "resize") a.hooks.resize = (call) => arriving.then(call);
      else {
        a.hooks.resize = () => Promise.resolve("gone");
        a.hooks.renew = (call) => arriving.then(call);
      }
      const downgrading = watch(hold.downgrade());
      await settle();
      await hold.release();
      arrive();
      await settle();
      expect(downgrading.state).toBe("failed");
      expect.soft(types(a.told)).not.toContain("lost");
      expect(hold.state).toBe("released");
    }
  });

  test("a hold is lost once, with one reason", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.readWrite("rw").write.acquire({ renew: false, leaseMs: 1000 });
    let arrive: () => void = () => {};
    a.hooks.resize = async (call) => {
      await new Promise<void>((resolve) => (arrive = resolve));
      return call();
    };
    void hold.downgrade().catch(() => {});
    await clock.advance(1100);
    arrive();
    await settle();
    expect(types(a.told).filter((type) => type === "lost")).toHaveLength(1);
  });

  test("a release at the very deadline, before any timer has run, is told as a loss", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    clock.stall(hold.remainingMs);
    await expect(hold.release()).rejects.toMatchObject({ reason: "deadline" });
    expect(hold.state).toBe("lost");
  });

  test("a loss that was told is not told again by a release after the deadline", async () => {
    const base = rig();
    const { locks, push } = await wired(base);
    const hold = await locks.mutex("m").acquire();
    const reasons: string[] = [];
    locks.on("lost", ({ reason }) => reasons.push(reason));
    push({ kind: "lost", name: "m", id: hold.id });
    await base.clock.advance(60_000);
    await expect(hold.release()).rejects.toMatchObject({ reason: "revoked" });
    expect(reasons).toEqual(["revoked"]);
    await locks.close();
  });

  test("whoever gives it back when it is told of the jeopardy leaves nothing behind that waits", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = () => Promise.reject(new Error("connection refused"));
    const released: Promise<void>[] = [];
    a.locks.on("jeopardy", () => released.push(hold.release()));
    await clock.advance(2500);
    expect(released).toHaveLength(1);
    await released[0];
    expect(a.locks.client.deadlines.size).toBe(0);
  });

  test.each<[string, boolean, (one: Ending) => unknown]>([
    ["a release", false, ({ hold }) => hold.release()],
    ["a hand-over", false, ({ hold }) => hold.handOver()],
    ["closing", true, ({ locks }) => locks.close()],
    ["a push", true, ({ push, hold }) => push({ kind: "lost", name: "m", id: hold.id })],
  ])(
    "%s ends it, however long its lease would last: no time is left, and its signal tells a loss",
    async (_, loses, end) => {
      const { locks, ...wire } = await wired(rig());
      const hold = await locks.mutex("m").acquire({ leaseMs: 10_000 });
      const { signal } = hold;
      await end({ locks, ...wire, hold });
      expect(hold.remainingMs).toBe(0);
      expect(hold.state).toBe(loses ? "lost" : "released");
      expect(signal.aborted).toBe(loses);
      expect(hold.signal.aborted).toBe(loses);
      expect(() => hold.throwIfLost()).toThrow(loses ? LockLostError : NotHeldError);
      await locks.close();
      expect(locks.client.deadlines.size).toBe(0);
    },
  );

  test("an abort listener that throws does not stop the loss", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    const thrown: unknown[] = [];
    const others = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => thrown.push(error));
    hold.signal.addEventListener("abort", () => {
      throw new Error("mine");
    });
    a.hooks.renew = () => never();
    await clock.advance(11_000);
    process.removeAllListeners("uncaughtException");
    for (const other of others) process.on("uncaughtException", other);
    expect(thrown).toHaveLength(1);
    expect(hold.state).toBe("lost");
    expect(types(a.told)).toContain("withdrawn");
  });

  test("maxHoldMs that ends during jeopardy is not overshot", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 9000, maxHoldMs: 8000 });
    a.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(6500);
    expect(hold.state).toBe("jeopardy");
    delete a.hooks.renew;
    await clock.advance(1000);
    expect(hold.state).toBe("held");
    const { renew } = a.calls;
    await clock.advance(7000);
    expect(a.calls.renew).toBe(renew);
    await clock.advance(3000);
    expect(hold.state).toBe("lost");
  });
});
