import { describe, expect, test } from "vitest";
import { EngineUnavailableError, InvalidOptionError, LockLostError, NotHeldError } from "../../src/core/errors.js";
import { WriteHold } from "../../src/core/hold.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, types, watch } from "./rig.js";

describe("holding", () => {
  test("a hold has a token, is renewed while it lives, and passes on when it is released", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const first = await a.locks.mutex("m").acquire();
    expect(first.state).toBe("held");
    expect(first.token).toBeGreaterThan(0);
    await clock.advance(60_000);
    first.throwIfLost();
    expect(await b.locks.mutex("m").tryAcquire()).toBeNull();
    await first.release();
    const second = await b.locks.mutex("m").acquire({ waitMs: 0 });
    expect(second.token).toBeGreaterThan(first.token);
    expect(first.state).toBe("released");
    expect(() => first.throwIfLost()).toThrow(NotHeldError);
    await second.release();
  });

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

  test("the state is jeopardy with a third of the time left, and held again after a confirmed renewal", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = () => Promise.reject(new Error("away"));
    await clock.advance(2100);
    expect(hold.state).toBe("jeopardy");
    expect(types(a.told)).toContain("jeopardy");
    delete a.hooks.renew;
    await clock.advance(500);
    expect(hold.state).toBe("held");
    expect(hold.signal.aborted).toBe(false);
    await hold.release();
  });

  test("pitfall 3: nothing is renewed after the release, and releasing one hold does not stop another's renewal", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const one = await a.locks.mutex("one").acquire();
    const two = await a.locks.mutex("two").acquire();
    await one.release();
    const renewed: string[] = [];
    a.hooks.renew = (call, signs) => (renewed.push(...signs.map((sign) => sign.name)), call());
    await clock.advance(10_000);
    expect(new Set(renewed)).toEqual(new Set(["two"]));
    two.throwIfLost();
    await two.release();
  });

  test("pitfall 3: a renewal that arrives after the release is a no-op in the store", async () => {
    const { engine, open, store } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    await hold.release();
    expect(await engine().renew([{ name: "m", id: hold.id }])).toEqual([{ kind: "gone" }]);
    expect(store.size.claims).toBe(0);
  });

  test("pitfall 4: renewal goes on after an error, until the deadline, and no rejection escapes", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    let failures = 0;
    a.hooks.renew = (call) => (++failures % 3 === 0 ? call() : Promise.reject(new Error("flaky")));
    await clock.advance(30_000);
    expect(hold.state).toBe("held");
    expect(failures).toBeGreaterThan(10);
    expect(types(a.told)).toContain("unavailable");
    await hold.release();
  });

  test("pitfall 5: a renewal that hangs does not silence the deadline", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    a.hooks.renew = () => never();
    await clock.advance(2950);
    expect(hold.signal.aborted).toBe(false);
    await clock.advance(20);
    expect(hold.signal.aborted).toBe(true);
    expect(hold.state).toBe("lost");
  });

  test("pitfall 5: a hung renewal does not stop later ones", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const hold = await a.locks.mutex("m").acquire();
    let calls = 0;
    a.hooks.renew = (call) => (++calls === 1 ? never() : call());
    await clock.advance(30_000);
    expect(hold.state).toBe("held");
    await hold.release();
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

  test("pitfall 7: a grant whose answer was slow is given back, not returned", async () => {
    const { clock, open, store } = rig();
    const a = await open({ leaseMs: 1000 });
    a.hooks.claim = async (call) => {
      const answer = await call();
      clock.stall(1200);
      return answer;
    };
    await expect(a.locks.mutex("m").acquire({ waitMs: 0 })).rejects.toBeInstanceOf(EngineUnavailableError);
    await settle();
    expect(store.size.claims).toBe(0);
  });

  test("pitfall 7: while waiting, a grant that came too late is asked for again", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 1000 });
    let slow = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (slow) clock.stall(1200);
      slow = false;
      return answer;
    };
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(1500);
    expect(asked.state).toBe("done");
    expect(a.calls.claim).toBe(2);
    asked.value?.throwIfLost();
    await asked.value?.release();
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

  test("pitfall 11: the renewal interval has a floor, and holds share their renewals", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 100 });
    const holds = await Promise.all(Array.from({ length: 50 }, (_, n) => a.locks.mutex(`m${n}`).acquire()));
    await clock.advance(1000);
    expect(a.calls.renew).toBeGreaterThan(10);
    expect(a.calls.renew).toBeLessThanOrEqual(1000 / 25);
    for (const hold of holds) hold.throwIfLost();
    await Promise.all(holds.map((hold) => hold.release()));
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

  test("pitfall 50: an answer asked for again counts the store's time left, not a full lease", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 10_000, callTimeoutMs: 5000 });
    let lost = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (!lost) return answer;
      lost = false;
      return never();
    };
    a.hooks.renew = () => never();
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(5100);
    expect(asked.state).toBe("done");
    expect(asked.value?.remainingMs).toBeLessThan(4950);
    // The store's lease ends 10 s after the first claim arrived; the holder stops before that.
    await clock.advance(4850);
    expect(asked.value?.state).toBe("lost");
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

  test("a release that cannot be confirmed says so, and goes on in the background", async () => {
    const { clock, open, store } = rig();
    const a = await open({ callTimeoutMs: 500 });
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 2000 });
    a.hooks.release = () => Promise.reject(new Error("away"));
    const released = watch(hold.release());
    await clock.advance(1500);
    expect(released.state).toBe("pending");
    await clock.advance(490);
    expect(released.error).toBeInstanceOf(EngineUnavailableError);
    expect(store.size.claims).toBe(1);
    delete a.hooks.release;
    await clock.advance(1500);
    expect(store.size.claims).toBe(0);
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
    a.hooks.renew = async (_call, signs) => signs.map(() => ({ kind: "gone" }));
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

  test("a grant with too little time left is given back and asked for again", async () => {
    const { clock, open } = rig();
    const a = await open();
    let slow = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (slow) clock.stall(600);
      slow = false;
      return answer;
    };
    const asked = watch(a.locks.mutex("m").acquire({ leaseMs: 1000, renew: false, minRemainingMs: 800 }));
    await clock.advance(700);
    expect(asked.state).toBe("done");
    expect(asked.value?.remainingMs).toBeGreaterThan(800);
    await asked.value?.release();
  });

  test("a hold can be handed over to another client, token and all", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const b = await open();
    await clock.advance(500);
    const hold = await a.locks.mutex("m").acquire();
    await clock.advance(700);
    const data = JSON.parse(JSON.stringify(hold.handOver()));
    expect(hold.state).toBe("released");
    expect(a.told.at(-1)).toMatchObject({ type: "released", heldMs: 700, handedOver: true });
    expect(store.size.claims).toBe(1);
    await a.locks.close();
    const adopted = await b.locks.adopt(data);
    expect(adopted.token).toBe(hold.token);
    await clock.advance(30_000);
    adopted.throwIfLost();
    await adopted.release();
    expect(store.size.claims).toBe(0);
    await expect(b.locks.adopt(data)).rejects.toThrow(/has ended/);
  });

  test("an adopted write hold can be downgraded; an adopted mutex or read hold is a plain one", async () => {
    const { open } = rig();
    const [a, b] = [await open(), await open()];
    const { read, write } = a.locks.readWrite("rw");
    const writer = await b.locks.adopt((await write.acquire()).handOver());
    expect(writer).toBeInstanceOf(WriteHold);
    await (writer as WriteHold).downgrade();
    await writer.release();
    for (const hold of [await a.locks.mutex("m").acquire(), await read.acquire()]) {
      const adopted = await b.locks.adopt(hold.handOver());
      expect(adopted).not.toBeInstanceOf(WriteHold);
      await adopted.release();
    }
  });

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

  test("await using gives the lock back on every way out", async () => {
    const { open, store } = rig();
    const a = await open();
    const work = async (): Promise<void> => {
      await using hold = await a.locks.mutex("m").acquire();
      hold.throwIfLost();
      throw new Error("work failed");
    };
    await expect(work()).rejects.toThrow("work failed");
    expect(store.size.claims).toBe(0);
  });
});
