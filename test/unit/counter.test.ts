import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import {
  EngineUnavailableError,
  InvalidOptionError,
  MisuseError,
  OutcomeUnknownError,
  UnsupportedError,
} from "../../src/core/errors.js";
import { faulty, PausableClock, SOME_FAULTS } from "../../src/testing/faults.js";
import { intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { never, rig, watch } from "./rig.js";

test("a counter starts at 0, adds up over clients and keeps to whole numbers", async () => {
  const { open } = rig();
  const [a, b] = [(await open()).locks.counter("c"), (await open()).locks.counter("c")];
  expect(await a.get()).toBe(0);
  expect(await a.add()).toBe(1);
  expect(await b.add(41)).toBe(42);
  expect(await b.add(-2)).toBe(40);
  expect(await a.compareAndSet(40, 0)).toBe(true);
  expect(await a.compareAndSet(40, 7)).toBe(false);
  expect(await a.compareAndSet(0, 0)).toBe(true);
  expect(await b.get()).toBe(0);
  await expect(a.add(0.5)).rejects.toBeInstanceOf(InvalidOptionError);
  await a.add(Number.MAX_SAFE_INTEGER);
  await expect(a.add(1)).rejects.toBeInstanceOf(InvalidOptionError);
  expect(await a.get()).toBe(Number.MAX_SAFE_INTEGER);
});

test("an addition whose answer was lost is sent again and counts once", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  let lost = 0;
  hooks.cellWrite = async (call) => {
    const answer = await call();
    if (lost++ < 2) throw new Error("the answer was lost");
    return answer;
  };
  const sum = watch(locks.counter("c").add(5));
  await clock.advance(1000);
  expect(sum).toMatchObject({ state: "done", value: 5 });
  expect(lost).toBe(3);
});

test("an addition that nobody answers ends in OutcomeUnknownError, not in a guess", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  hooks.cellWrite = async (call) => (await call(), never());
  const sum = watch(locks.counter("c").add());
  await clock.advance(6000);
  expect(sum.error).toBeInstanceOf(OutcomeUnknownError);
  delete hooks.cellWrite;
  expect(await locks.counter("c").get()).toBe(1);
});

test("a program that stands still for longer than the store remembers does not count twice", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  const other = (await open()).locks.counter("c");
  let sends = 0;
  hooks.cellWrite = async (call) => {
    sends += 1;
    const answer = await call();
    if (sends > 1) return answer;
    // Written; the answer is lost, somebody else goes on, and this process sleeps two minutes before it asks again.
    await other.add(10);
    await other.add(10);
    clock.stall(130_000);
    await other.add(10);
    throw new Error("the answer was lost");
  };
  const sum = watch(locks.counter("c").add());
  await clock.advance(10_000);
  expect(sum.error).toBeInstanceOf(OutcomeUnknownError);
  expect(await other.get()).toBe(31);
});

test("on an unreliable connection every addition counts exactly once", { timeout: 60_000 }, async () => {
  const { clock, engine } = rig();
  let unknown = 0;
  let known = 0;
  const clients = await Promise.all(
    [1, 2, 3, 4].map(async (seed) => {
      const own = new PausableClock(clock);
      const wired = faulty(engine(), own, new SeededChance(seed), () => SOME_FAULTS);
      return connect(wired, { clock: own, chance: new SeededChance(seed + 100), callTimeoutMs: 5000 });
    }),
  );
  const work = clients.map(async (locks) => {
    for (let n = 0; n < 50; n += 1) {
      try {
        await locks.counter("c").add();
        known += 1;
      } catch (error) {
        // Read, and not written: nothing happened.
        if (error instanceof EngineUnavailableError) continue;
        if (!(error instanceof OutcomeUnknownError)) throw error;
        unknown += 1;
      }
    }
  });
  const done = watch(Promise.all(work));
  for (let passed = 0; done.state === "pending" && passed < 3_000_000; passed += 1000) await clock.advance(1000);
  expect(done).toMatchObject({ state: "done" });
  const sum = await (await connect(engine(), { clock })).counter("c").get();
  expect(known).toBeGreaterThan(100);
  expect(sum).toBeGreaterThanOrEqual(known);
  expect(sum).toBeLessThanOrEqual(known + unknown);
  for (const locks of clients) {
    const closing = locks.close();
    await clock.advance(60_000);
    await closing;
  }
});

test("a name is one kind of thing, and a store without cells says so at once", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  await locks.counter("x").add();
  await expect(locks.latch("x", 2).count()).rejects.toThrow(/in use as a counter, not as a latch/);
  await expect(locks.latch("x", 2).countDown()).rejects.toBeInstanceOf(MisuseError);
  for (const value of ["not ours", "null", "[1]", "7"]) {
    await engine().cells?.write({
      name: `foreign ${value}`,
      operation: `${value}-${"x".repeat(22)}`,
      expected: 0,
      value,
    });
    await expect(locks.counter(`foreign ${value}`).add()).rejects.toThrow(/in use as a value of another program/);
    await expect(locks.latch(`foreign ${value}`, 1).wait()).rejects.toBeInstanceOf(MisuseError);
  }
  const bare = await connect({ ...intercept(engine(), {}), cells: null });
  expect(() => bare.counter("c")).toThrow(UnsupportedError);
  expect(() => bare.latch("c", 1)).toThrow(UnsupportedError);
  expect(() => bare.barrier("c", 2)).toThrow(UnsupportedError);
  expect(() => bare.doubleBarrier("c", 2)).toThrow(UnsupportedError);
  await expect(bare.schedule("c", { everyMs: 1000 }, () => {})).rejects.toBeInstanceOf(UnsupportedError);
});
