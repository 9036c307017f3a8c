import { describe, expect, test } from "vitest";
import type { ClaimAnswer } from "../../src/core/engine.js";
import { EngineUnavailableError, NotHeldError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { claimOf, never, rig, types, watch } from "./rig.js";

describe("releasing", () => {
  test("pitfall 3: nothing is renewed after the release, and releasing one hold does not stop another's renewal", async () => {
    const { clock, open } = rig();
    const a = await open({ leaseMs: 3000 });
    const one = await a.locks.mutex("one").acquire();
    const two = await a.locks.mutex("two").acquire();
    await one.release();
    const renewed: string[] = [];
    a.hooks.renew = (call, requests) => (renewed.push(...requests.map(({ name }) => name)), call());
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

  test("pitfall 54: a claim that arrives after its own release answers gone and leaves no orphan", async () => {
    const { clock, open, store } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    let arrive: (() => Promise<unknown>) | undefined;
    a.hooks.claim = (call) => ((arrive = call), never());
    const timed = watch(a.locks.mutex("m").acquire({ waitMs: 500 }));
    await clock.advance(600);
    expect(timed.error).toBeInstanceOf(EngineUnavailableError);
    expect(await arrive?.()).toEqual({ kind: "gone" });
    expect(store.size.claims).toBe(0);
  });

  test("pitfall 62: a slow first copy of a claim does not come to life after grant and release", async () => {
    const { clock, open, store } = rig();
    const a = await open({ callTimeoutMs: 1000 });
    let firstCopy: (() => Promise<unknown>) | undefined;
    a.hooks.claim = (call) => {
      if (firstCopy !== undefined) return call();
      firstCopy = call;
      return never();
    };
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(1100);
    expect(asked.state).toBe("done");
    await asked.value?.release();
    expect(await firstCopy?.()).toEqual({ kind: "gone" });
    expect(store.size.claims).toBe(0);
  });

  test("a release leaves no tombstone where the claim was sent once and answered, and one otherwise", async () => {
    const { clock, open, store } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    await hold.release();
    expect(store.size.tombstones).toBe(0);
    let first = true;
    a.hooks.claim = async (call) => {
      const answer = await call();
      if (!first) return answer;
      first = false;
      throw new Error("reset");
    };
    const asked = watch(a.locks.mutex("m").acquire());
    await clock.advance(100);
    await asked.value?.release();
    expect(store.size.tombstones).toBe(1);
  });

  test("pitfall 22: a release with another id frees nothing; ids are random for each acquisition", async () => {
    const { engine, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    expect(await engine().release({ name: "m", id: a.locks.owner.client })).toBe("gone");
    expect(await engine().release({ name: "m", id: "some-other-claim-of-mine" })).toBe("gone");
    expect(await a.locks.mutex("m").isHeld()).toBe(true);
    await hold.release();
    const next = await a.locks.mutex("m").acquire();
    expect(next.id).not.toBe(hold.id);
    await next.release();
  });

  test("pitfall 24: after a take-over the new holder releases and the old one is refused", async () => {
    const { clock, engine } = rig();
    const a = engine();
    const b = engine();
    await a.claim(claimOf("old"));
    await clock.advance(10_000);
    expect((await b.claim(claimOf("new"))).kind).toBe("granted");
    expect(await a.release(claimOf("old"))).toBe("gone");
    expect((await a.claim(claimOf("third"))).kind).toBe("busy");
    expect(await b.release(claimOf("new"))).toBe("released");
  });

  test("releasing twice is the same release; using a released hold is an error", async () => {
    const { open } = rig();
    const { locks, calls } = await open();
    const hold = await locks.mutex("m").acquire({ renew: false });
    await Promise.all([hold.release(), hold.release()]);
    await hold.release();
    expect(calls.release).toBe(1);
    expect(hold.remainingMs).toBe(0);
    expect(() => hold.throwIfLost()).toThrow(NotHeldError);
    await expect(hold.extend(1000)).rejects.toBeInstanceOf(NotHeldError);
    expect(() => hold.handOver()).toThrow(NotHeldError);
  });

  test("an id of the caller's own leaves a tombstone: a copy from before a crash does not come to life after the release", async () => {
    const { open, store } = rig();
    const before = await open();
    const after = await open();
    const id = "an-id-written-down-before-asking";
    let late: (() => Promise<ClaimAnswer>) | undefined;
    before.hooks.claim = (call) => ((late = call), never());
    void before.locks
      .mutex("m")
      .acquire({ id })
      .catch(() => {}); // this process dies, its request is on the wire
    await settle();
    const hold = await after.locks.mutex("m").acquire({ id }); // started again with the id it wrote down
    await hold.release();
    expect((await late?.())?.kind).toBe("gone");
    expect(store.size.claims).toBe(0);
  });

  test("a release from inside the `jeopardy` event leaves no timer behind", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire({ leaseMs: 3_600_000 });
    a.hooks.renew = () => never();
    a.locks.on("jeopardy", () => void hold.release());
    await clock.advance(2_500_000);
    expect(hold.state).toBe("released");
    await a.locks.close();
    expect(clock.pending).toBe(0);
  });

  test("a renewal that is answered gone, queued or with another token after the release changes nothing", async () => {
    const { clock, open } = rig();
    const a = await open();
    const hold = await a.locks.mutex("m").acquire();
    let arrive: () => void = () => {};
    a.hooks.renew = async (_call, requests) => {
      await new Promise<void>((resolve) => (arrive = resolve));
      return requests.map(() => ({ kind: "gone" }));
    };
    await clock.advance(3400);
    await hold.release();
    arrive();
    await settle();
    expect(hold.state).toBe("released");
    expect(types(a.told)).not.toContain("lost");
  });
});
