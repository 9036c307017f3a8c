import { describe, expect, test } from "vitest";
import { CapacityMismatchError, MisuseError } from "../../src/core/errors.js";
import { settle } from "../../src/testing/fake-clock.js";
import { claimOf, rig, watch } from "./rig.js";

describe("semaphore", () => {
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

  test("resizing a semaphore whose name is a mutex in use lets nobody into the mutex", async () => {
    const { open } = rig();
    const a = await open();
    const b = await open();
    const c = await open();
    const first = await a.locks.mutex("m").acquire();
    const second = watch(b.locks.mutex("m").acquire());
    await settle();
    await c.locks
      .semaphore("m", 3)
      .resize(2)
      .catch(() => {}); // a CapacityMismatchError is expected: the name has capacity 1, not 3
    await settle();
    expect([first.state, second.value?.state]).not.toEqual(["held", "held"]);
  });
});

test("all who hold permits are its holders", async () => {
  const { open } = rig();
  const semaphore = (await open()).locks.semaphore("s", 3);
  expect(await semaphore.isHeld()).toBe(false);
  const holds = [await semaphore.acquire({ permits: 2 }), await semaphore.acquire()];
  expect((await semaphore.holders()).map(({ id, units }) => [id, units])).toEqual([
    [holds[0]?.id, 2],
    [holds[1]?.id, 1],
  ]);
  expect(await semaphore.isHeld()).toBe(true);
  await Promise.all(holds.map((hold) => hold.release()));
});
