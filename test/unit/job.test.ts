import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidNameError, InvalidOptionError, LockLostError, UnsupportedError } from "../../src/core/errors.js";
import { intercept } from "../../src/testing/intercept.js";
import { never, rig, watch } from "./rig.js";

test("one runs it, the others leave it to that one and learn who it is", async () => {
  const { open } = rig();
  const [a, b] = [(await open({ label: "a" })).locks.job("j"), (await open()).locks.job("j")];
  const result = await a.run(async (hold) => {
    expect(await b.run(() => 1)).toMatchObject({ ran: false, holder: { label: "a" } });
    return `with token ${hold.token}`;
  });
  expect(result).toMatchObject({ ran: true, value: expect.stringMatching(/^with token \d+$/) });
  expect(await b.run(() => 2)).toMatchObject({ ran: true, value: 2 });
  // Not even inside of itself: that would be twice at a time.
  expect(await b.run(async () => (await b.run(() => 3)).ran)).toMatchObject({ ran: true, value: false });
  await expect(b.run(() => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
  expect(await a.run(() => 3)).toMatchObject({ ran: true });
});

test("at least for: it is not run again before, counted from its start, though its program is gone", async () => {
  const { clock, store, open } = rig();
  const a = await open();
  const b = (await open()).locks.job("j", { atLeastForMs: 60_000 });
  const running = watch(
    a.locks.job("j", { atLeastForMs: 60_000 }).run(() => new Promise<void>((resolve) => clock.after(5000, resolve))),
  );
  await clock.advance(5000);
  expect(running.state).toBe("done");
  await a.locks.close();
  expect(await b.run(() => 1)).toEqual({ ran: false });
  await clock.advance(54_900);
  expect(await b.run(() => 1)).toEqual({ ran: false });
  await clock.advance(200);
  expect(await b.run(() => 1)).toMatchObject({ ran: true });
  await clock.advance(61_000);
  await (await open()).locks.mutex("other").using(() => {});
  expect(store.size.claims).toBe(0);
});

test("the pause is left to its lease by every store: it outlives the process, the job's own lock does not", async () => {
  const { open } = rig();
  const { locks, hooks } = await open();
  const asked: unknown[] = [];
  hooks.claim = (call, { name, leaseOnly = false }) => (asked.push({ name, leaseOnly }), call());
  await locks.job("j", { atLeastForMs: 1000 }).run(() => {});
  expect(asked).toEqual([
    { name: "j", leaseOnly: false },
    { name: "j/at-least", leaseOnly: true },
  ]);
});

test("a job that lasts longer than at least for goes on alone, and ends the pause with itself", async () => {
  const { clock, open } = rig();
  const [a, b] = [(await open()).locks, (await open()).locks];
  const options = { atLeastForMs: 1000 };
  const running = watch(a.job("j", options).run(() => new Promise<void>((resolve) => clock.after(30_000, resolve))));
  await clock.advance(20_000);
  expect(await b.job("j", options).run(() => 1)).toMatchObject({ ran: false });
  await clock.advance(10_000);
  expect(running.state).toBe("done");
  expect(await b.job("j", options).run(() => 1)).toMatchObject({ ran: true });
});

test.each([500, 25_000])("at most for %d ms: then it is told and somebody else may run", async (atMostForMs) => {
  const { clock, open } = rig();
  const [a, b] = [(await open()).locks, (await open()).locks];
  let toldAt = Infinity;
  const stuck = watch(
    a.job("j", { atMostForMs }).run((hold) => {
      hold.signal.addEventListener("abort", () => (toldAt = clock.now()));
      return new Promise<void>((resolve) => clock.after(60_000, resolve));
    }),
  );
  await clock.advance(atMostForMs - Math.min(atMostForMs, 10_000) / 2);
  expect(await b.job("j").run(() => 1)).toMatchObject({ ran: false });
  await clock.advance(Math.min(atMostForMs, 10_000) / 2);
  expect(toldAt).toBeLessThanOrEqual(atMostForMs);
  await clock.advance(20);
  expect(await b.job("j").run(() => 1)).toMatchObject({ ran: true });
  await clock.advance(60_000);
  expect(stuck.error).toBeInstanceOf(LockLostError);
});

test("what a store cannot keep is refused when the job is made", async () => {
  const { open, engine } = rig();
  const { locks } = await open();
  expect(() => locks.job("j", { atMostForMs: 10 })).toThrow(InvalidOptionError);
  expect(() => locks.job("j", { atLeastForMs: 10 })).toThrow(InvalidOptionError);
  expect(() => locks.job("j", { atMost: 10 } as never)).toThrow(InvalidOptionError);
  expect(() => locks.job("j".repeat(510), { atLeastForMs: 1000 })).toThrow(/bytes/);
  const guarantees = { ...engine().guarantees, crashRelease: "session" as const };
  const session = await connect({ ...intercept(engine(), {}), guarantees });
  expect(() => session.job("j", { atLeastForMs: 1000 })).toThrow(UnsupportedError);
  expect(await session.job("j").run(() => 1)).toMatchObject({ ran: true });
});

test("each tick runs once in the whole fleet, with growing tokens", async () => {
  const { clock, open } = rig();
  const runs: { at: number; token: number; by: number }[] = [];
  for (const by of [0, 1, 2]) {
    const { locks } = await open();
    await locks.schedule("s", { everyMs: 60_000 }, ({ at, token }) => void runs.push({ at: at.getTime(), token, by }));
  }
  await clock.advance(10 * 60_000 + 100);
  expect(runs.map(({ at }) => at)).toEqual(Array.from({ length: 10 }, (_, n) => Date.UTC(2026, 0, 1, 0, n + 1)));
  expect(runs.map(({ token }) => token)).toEqual(runs.map(({ token }) => token).toSorted((a, b) => a - b));
});

test("clocks that differ agree on the ticks", async () => {
  const { clock, open } = rig();
  const slow = { ...clockOf(clock), wallMs: () => clock.wallMs() - 7000 };
  const runs: number[] = [];
  for (const options of [{}, { clock: slow }]) {
    const { locks } = await open(options);
    await locks.schedule("s", { everyMs: 60_000 }, ({ at }) => void runs.push(at.getTime()));
  }
  await clock.advance(5 * 60_000 + 10_000);
  // For the slow one midnight is still to come.
  expect(runs).toEqual(Array.from({ length: 6 }, (_, n) => Date.UTC(2026, 0, 1, 0, n)));
});

function clockOf(clock: ReturnType<typeof rig>["clock"]) {
  return {
    now: () => clock.now(),
    after: (ms: number, run: () => void) => clock.after(ms, run),
    cancel: (timer: object) => clock.cancel(timer),
  };
}

test("cron patterns have a time zone, UTC unless said", async () => {
  const { clock, open } = rig();
  const { locks } = await open();
  const runs: string[] = [];
  const note = ({ at }: { at: Date }): void => void runs.push(at.toISOString());
  const paris = await locks.schedule("paris", { cron: "30 9 * * *", timeZone: "Europe/Paris" }, note);
  expect(paris.next?.toISOString()).toBe("2026-01-01T08:30:00.000Z");
  const utc = await locks.schedule("utc", { cron: "0 30 9 * * *" }, note);
  expect(utc.next?.toISOString()).toBe("2026-01-01T09:30:00.000Z");
  await clock.advance(24 * 3_600_000);
  expect(runs).toEqual(["2026-01-01T08:30:00.000Z", "2026-01-01T09:30:00.000Z"]);
  await expect(locks.schedule("x", { cron: "never" }, note)).rejects.toBeInstanceOf(InvalidOptionError);
  await expect(locks.schedule("x", { cron: "* * * * *", timeZone: "Mars" }, note)).rejects.toThrow(/"cron"/);
  await expect(locks.schedule("x", {}, note)).rejects.toBeInstanceOf(InvalidOptionError);
  await expect(locks.schedule("x", { everyMs: 1000, timeZone: "UTC" }, note)).rejects.toBeInstanceOf(
    InvalidOptionError,
  );
});

test("a tick whose runner died before it began is run by another; one that began is not", async () => {
  const { clock, open } = rig();
  const a = await open();
  const b = await open();
  const runs: string[] = [];
  await a.locks.schedule("s", { everyMs: 60_000 }, () => void runs.push("a"));
  await clock.advance(10);
  await b.locks.schedule("s", { everyMs: 60_000 }, () => void runs.push("b"));
  // It has the lock, and dies while it writes down that it begins.
  a.hooks.cellWrite = () => never();
  a.hooks.renew = () => never();
  a.hooks.release = () => never();
  await clock.advance(60_000 + 15_000);
  expect(runs).toEqual(["b"]);
});

test("failures are told and do not end it; slept-through ticks are not made up; stop and close end it", async () => {
  const { clock, open } = rig();
  const { locks, told } = await open();
  let runs = 0;
  const schedule = await locks.schedule("s", { everyMs: 60_000 }, () => {
    runs += 1;
    throw new Error("failed");
  });
  await clock.advance(2 * 60_000 + 100);
  expect(runs).toBe(2);
  expect(told.filter(({ type }) => type === "warning")).toHaveLength(2);
  clock.stall(30 * 60_000);
  await clock.advance(100);
  expect(runs).toBe(2);
  await clock.advance(60_000);
  expect(runs).toBe(3);
  await schedule.stop();
  expect(schedule.next).toBe(null);
  await clock.advance(5 * 60_000);
  expect(runs).toBe(3);
  await locks.schedule("t", { everyMs: 60_000 }, () => {});
  await locks.close();
  await clock.advance(1);
  expect(clock.pending).toBe(0);
});

test("without anything to run nothing is taken, and no pause begins", async () => {
  const { store, open } = rig();
  const { locks } = await open();
  const job = locks.job("j", { atLeastForMs: 1000 });
  const wrong = [null, "work", undefined] as never[];
  for (const run of wrong) {
    await expect(job.run(run)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(locks.mutex("m").using(run)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(locks.all([locks.mutex("m")]).using(run)).rejects.toBeInstanceOf(InvalidOptionError);
    await expect(locks.schedule("s", { everyMs: 1000 }, run)).rejects.toBeInstanceOf(InvalidOptionError);
  }
  expect(store.size.claims).toBe(0);
  expect(await job.run(() => 1)).toMatchObject({ ran: true });
  // To the library a date is a pattern that comes once.
  const once = { cron: new Date(Date.UTC(2030, 0, 1)) as never };
  await expect(locks.schedule("s", once, () => {})).rejects.toBeInstanceOf(InvalidOptionError);
  await expect(locks.schedule("", { everyMs: 1000 }, () => {})).rejects.toBeInstanceOf(InvalidNameError);
});

test("a job's name may be as long as any, unless another one is made of it", async () => {
  const { open } = rig();
  const { locks } = await open();
  const longest = "n".repeat(512);
  expect(await locks.job(longest).run(() => 1)).toMatchObject({ ran: true });
  expect(() => locks.job(longest, { atLeastForMs: 1000 })).toThrow(InvalidNameError);
});

test("a tick that could not run before the next one is left out, also by those who waited for it", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  const startMs = clock.wallMs();
  const runs: number[] = [];
  const note = async ({ at }: { at: Date }): Promise<void> => {
    runs.push((at.getTime() - startMs) / 60_000);
    if (runs.length === 1) await new Promise<void>((resolve) => void clock.after(150_000, resolve));
  };
  for (const { locks } of [a, b]) await locks.schedule("s", { everyMs: 60_000 }, note);
  // The first one runs until after the third is due; the second one is over by then.
  await clock.advance(5 * 60_000 - 1);
  expect(runs).toEqual([1, 3, 4]);
});

test.each([
  { sleptMs: 59_999, ran: [1] },
  { sleptMs: 60_000, ran: [2] },
  { sleptMs: 60_001, ran: [] },
  { sleptMs: 119_999, ran: [] },
  { sleptMs: 120_000, ran: [3] },
])(
  "a program that slept for $sleptMs ms from the first tick on runs what is due then, and nothing that was before",
  async (one) => {
    const { clock, open } = rig();
    const { locks } = await open();
    const startMs = clock.wallMs();
    const ticks: number[] = [];
    await locks.schedule("s", { everyMs: 60_000 }, ({ at }) => void ticks.push((at.getTime() - startMs) / 60_000));
    clock.stall(60_000 + one.sleptMs);
    await clock.advance(0);
    expect(ticks).toEqual(one.ran);
  },
);

test("a tick that has begun elsewhere is left without asking for the lock", async () => {
  const { clock, open } = rig();
  const [a, b] = [await open(), await open()];
  let runs = 0;
  for (const { locks } of [a, b]) await locks.schedule("s", { everyMs: 60_000 }, () => void (runs += 1));
  b.hooks.cellRead = async (call) => {
    await new Promise<void>((resolve) => void clock.after(1000, resolve));
    return call();
  };
  await clock.advance(5 * 60_000 + 10_000);
  expect([runs, b.calls.claim]).toEqual([5, 0]);
});

test("a schedule has its times from one of cron and everyMs", async () => {
  const { locks } = await rig().open();
  for (const options of [{}, { cron: "* * * * *", everyMs: 60_000 }])
    await expect(locks.schedule("s", options, () => {})).rejects.toThrow(/one of the two/);
});
