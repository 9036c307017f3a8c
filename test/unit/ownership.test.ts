import { describe, expect, test } from "vitest";
import type { ClaimRequest } from "../../src/core/engine.js";
import { CapacityMismatchError, LockLostError, MisuseError, UpgradeDeadlockError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { settle } from "../../src/testing/fake-clock.js";
import { never, rig, watch } from "./rig.js";

const owner = { client: "c", host: "h", pid: 1 };
const claimOf = (id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  name: "m",
  id: id.padEnd(22, "."),
  units: 1,
  capacity: 1,
  leaseMs: 10_000,
  wait: false,
  owner,
  ...over,
});

describe("ownership, counting and tokens", () => {
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

  test("pitfall 25: permits never leak or drift: crash, double release and release of a stranger change nothing", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const semaphore = a.locks.semaphore("s", 3);
    const one = await semaphore.acquire({ permits: 2 });
    expect(await semaphore.available()).toBe(1);
    await one.release();
    await one.release();
    expect(await semaphore.available()).toBe(3);
    await engine().claim(claimOf("crashed", { name: "s", capacity: 3, units: 3 }));
    expect(await semaphore.available()).toBe(0);
    await clock.advance(10_000);
    expect(await semaphore.available()).toBe(3);
    expect(await engine().release(claimOf("crashed", { name: "s" }))).toBe("gone");
    expect(await semaphore.available()).toBe(3);
  });

  test("pitfall 26: several permits are taken all or none, and nobody overtakes the one who waits for many", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const s = a.locks.semaphore("s", 3);
    const one = await s.acquire({ permits: 2 });
    const many = watch(b.locks.semaphore("s", 3).acquire({ permits: 3 }));
    await settle();
    expect(await s.available()).toBe(1);
    const small = watch(a.locks.semaphore("s", 3).acquire());
    await settle();
    expect(small.state).toBe("pending");
    expect(await s.tryAcquire()).toBeNull();
    await one.release();
    await clock.advance(10);
    expect(many.state).toBe("done");
    expect(small.state).toBe("pending");
    await many.value?.release();
    await clock.advance(10);
    expect(small.state).toBe("done");
    await small.value?.release();
  });

  test("pitfall 27: another capacity is an error until it is changed on purpose", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const s = a.locks.semaphore("s", 2);
    const one = await s.acquire({ permits: 2 });
    const error = await b.locks
      .semaphore("s", 5)
      .acquire()
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CapacityMismatchError);
    expect(error).toMatchObject({ asked: 5, actual: 2, lock: "s" });
    expect(b.calls.release).toBe(0);
    const waiting = watch(b.locks.semaphore("s", 2).acquire({ permits: 2 }));
    await settle();
    await s.resize(4);
    await clock.advance(10);
    expect(waiting.state).toBe("done");
    expect(s.capacity).toBe(4);
    const tooLarge = watch(s.acquire({ permits: 4 }));
    await settle();
    await b.locks.semaphore("s", 4).resize(3);
    await clock.advance(1000);
    // The waiter can never be served: it is told, not left to wait.
    expect(tooLarge.error).toBeInstanceOf(CapacityMismatchError);
    await one.release();
    await waiting.value?.release();
    // An idle name has no capacity.
    const free = await a.locks.semaphore("s", 9).acquire({ permits: 9 });
    await free.release();
  });

  test("pitfall 29: taking the write lock while reading fails at once; write then read and downgrade work", async () => {
    const { clock, open } = rig();
    const a = await open();
    const b = await open();
    const lock = a.locks.readWrite("rw");
    await lock.read.using(async (hold) => {
      await expect(lock.write.acquire()).rejects.toBeInstanceOf(UpgradeDeadlockError);
      await expect(lock.write.tryAcquire({ within: hold })).rejects.toBeInstanceOf(UpgradeDeadlockError);
    });
    const other = b.locks.readWrite("rw").read;
    await lock.write.using(async (writing) => {
      await lock.read.using((reading) => expect(reading.token).toBe(writing.token));
      const reader = watch(other.acquire());
      await clock.advance(10);
      expect(reader.state).toBe("pending");
      const { token } = writing;
      await writing.downgrade();
      await clock.advance(10);
      expect(reader.state).toBe("done");
      expect(writing.token).toBe(token);
      await expect(lock.write.acquire()).rejects.toBeInstanceOf(UpgradeDeadlockError);
      expect(await lock.write.isHeld()).toBe(false);
      expect(await lock.read.holders()).toHaveLength(2);
      await reader.value?.release();
    });
    expect(await lock.read.isHeld()).toBe(false);
  });

  test("pitfall 30: readers that arrive after a waiting writer wait behind it", async () => {
    const { clock, open } = rig();
    const a = await open();
    const rw = a.locks.readWrite("rw");
    const reading = await rw.read.acquire();
    const writer = watch(rw.write.acquire());
    await settle();
    const later = watch(rw.read.acquire());
    await clock.advance(100);
    expect([writer.state, later.state]).toEqual(["pending", "pending"]);
    await reading.release();
    await clock.advance(10);
    expect([writer.state, later.state]).toEqual(["done", "pending"]);
    await writer.value?.release();
    await clock.advance(10);
    expect(later.state).toBe("done");
    await later.value?.release();
  });

  test("pitfall 31: a dead reader leaves at the end of its own lease, whatever live readers renew", async () => {
    const { clock, engine, open } = rig();
    const a = await open({ leaseMs: 2000 });
    const rw = a.locks.readWrite("rw");
    const live = await rw.read.acquire();
    await engine().claim(claimOf("dead", { name: "rw", capacity: READERS_MAX, leaseMs: 3000 }));
    await clock.advance(2900);
    expect(await rw.read.holders()).toHaveLength(2);
    await clock.advance(200);
    expect(await rw.read.holders()).toHaveLength(1);
    live.throwIfLost();
    await live.release();
  });

  test("pitfall 55: a shared grant carries the lowest live token, so that living permit holders are not fenced", async () => {
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

  test("pitfall 65: units only shrink, and the hold is a reader from the moment that is sent", async () => {
    const { clock, engine, open } = rig();
    const a = await open();
    const writing = await a.locks.readWrite("rw").write.acquire();
    const id = writing.id;
    expect(await engine().resize({ name: "rw", id }, READERS_MAX)).toBe("resized");
    expect(await engine().resize({ name: "rw", id }, 1)).toBe("resized");
    expect(await engine().resize({ name: "rw", id }, 2)).toBe("refused");
    a.hooks.resize = () => never();
    const shrinking = watch(writing.downgrade());
    await expect(a.locks.readWrite("rw").write.acquire({ within: writing })).rejects.toBeInstanceOf(
      UpgradeDeadlockError,
    );
    delete a.hooks.resize;
    await clock.advance(5100);
    expect(shrinking.state).toBe("done");
    await writing.release();
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

  test("a semaphore is not re-entrant: inside its own callback more permits are taken", async () => {
    const { open } = rig();
    const a = await open();
    const s = a.locks.semaphore("s", 2);
    await s.using(async (hold) => {
      expect(await s.available()).toBe(1);
      await s.using(async () => expect(await s.available()).toBe(0));
      await expect(s.acquire({ within: hold })).rejects.toBeInstanceOf(MisuseError);
    });
  });

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
