import { expect, test } from "vitest";
import { ClosedError, EngineUnavailableError, MisuseError, WaitTimeoutError } from "../../src/core/errors.js";
import { never, rig, watch } from "./rig.js";

test("a latch opens at zero, for those who wait and for those who come later", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open()).locks.latch("l", 3), (await open()).locks.latch("l", 3)];
  const waiting = watch(a.wait());
  await clock.advance(100);
  expect(await b.countDown()).toBe(2);
  expect(await b.count()).toBe(2);
  await clock.advance(5000);
  expect(waiting.state).toBe("pending");
  expect(await a.countDown(5)).toBe(0);
  await clock.advance(1);
  expect(waiting.state).toBe("done");
  await b.wait();
  expect(await b.countDown()).toBe(0);
});

test("a countdown whose answer was lost counts once", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  let lost = false;
  hooks.cellWrite = async (call) => {
    const answer = await call();
    if (lost) return answer;
    lost = true;
    throw new Error("the answer was lost");
  };
  const counted = watch(locks.latch("l", 3).countDown());
  await clock.advance(1000);
  expect(counted).toMatchObject({ state: "done", value: 2 });
});

test("a wait ends by timeout, by its signal and with its client, and leaves no timer", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  const before = clock.pending;
  const latch = locks.latch("l", 2);
  await latch.countDown();
  const timed = watch(latch.wait({ waitMs: 500 }));
  await clock.advance(499);
  expect(timed.state).toBe("pending");
  await clock.advance(1);
  expect(timed.error).toBeInstanceOf(WaitTimeoutError);
  expect((timed.error as Error).message).toContain("1 of the latch is still to be done");
  await expect(latch.wait({ waitMs: 0 })).rejects.toBeInstanceOf(WaitTimeoutError);
  const controller = new AbortController();
  const aborted = watch(latch.wait({ signal: controller.signal }));
  await clock.advance(10);
  controller.abort(new Error("enough"));
  await clock.advance(1);
  expect(aborted.error).toEqual(new Error("enough"));
  expect(clock.pending).toBe(before);
  const closed = watch(latch.wait());
  await clock.advance(10);
  await locks.close();
  await clock.advance(1);
  expect(closed.error).toBeInstanceOf(ClosedError);
  expect(clock.pending).toBe(0);
});

test("a store that is away during a wait may come back; if not, the wait says that it was away", async () => {
  const { clock, open } = rig();
  const { locks, hooks } = await open();
  const other = (await open()).locks.latch("l", 1);
  hooks.cellRead = () => never();
  const failed = watch(locks.latch("l", 1).wait({ waitMs: 8000 }));
  const patient = watch(locks.latch("l", 1).wait({ waitMs: 60_000 }));
  await clock.advance(8000);
  expect(failed.error).toBeInstanceOf(EngineUnavailableError);
  await other.countDown();
  delete hooks.cellRead;
  await clock.advance(8000);
  expect(patient.state).toBe("done");
});

test("reset closes it again, for waiters too; without a count nothing is left; programs must agree on the count", async () => {
  const { clock, open, engine } = rig();
  const { locks } = await open();
  const latch = locks.latch("l", 2);
  await latch.countDown();
  const waiting = watch(latch.wait());
  await clock.advance(10);
  await latch.reset(3);
  expect(await latch.countDown()).toBe(2);
  await expect(locks.latch("l", 2).countDown()).rejects.toBeInstanceOf(MisuseError);
  await expect(locks.latch("l", 2).wait()).rejects.toThrow(/latch of 3, not of 2/);
  await latch.countDown(2);
  await clock.advance(10);
  expect(waiting.state).toBe("done");
  await latch.reset();
  expect(await engine().cells?.read("l")).toEqual({ version: 0, value: null });
  expect(await latch.count()).toBe(3);
});

test("what is open already is not written again: nobody is woken for nothing", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  const latch = locks.latch("l", 1);
  await latch.countDown();
  const opened = await engine().cells?.read("l");
  expect(await latch.countDown()).toBe(0);
  expect(await engine().cells?.read("l")).toEqual(opened);
});

test("a latch that nobody has counted down is reset without a write", async () => {
  const { open } = rig();
  const { locks, hooks } = await open();
  let writes = 0;
  hooks.cellWrite = (call) => ((writes += 1), call());
  await locks.latch("l", 2).reset();
  expect(writes).toBe(0);
  await locks.latch("l", 2).reset(2);
  expect(writes).toBe(1);
});
