import { execFileSync } from "node:child_process";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import type { Clock, Timer } from "../../src/core/clock.js";
import { Deadlines, Moment, type Timed } from "../../src/core/deadlines.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant("set" as const), which: fc.nat(15), inMs: fc.nat(40) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant("clear" as const), which: fc.nat(15) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.nat(30) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("jump" as const), ms: fc.nat(60) }) },
  // Many come, and most of them leave before their moment.
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant("crowd" as const),
      times: fc.array(fc.nat(40), { minLength: 90, maxLength: 180, size: "max" }),
    }),
  },
);

const CROWD = 16;

/** One whose timers keep a process alive unless they are told not to. */
class ProcessClock extends FakeClock {
  /** Those that wait, and whether they keep it alive. */
  readonly timers = new Map<Timer, boolean>();

  override after(ms: number, run: () => void): Timer {
    const timer = super.after(ms, () => {
      this.timers.delete(timer);
      run();
    });
    this.timers.set(timer, true);
    return timer;
  }

  override cancel(timer: Timer): void {
    this.timers.delete(timer);
    super.cancel(timer);
  }

  keepAlive(timer: Timer, yes: boolean): void {
    expect(this.timers.get(timer)).toBe(!yes);
    this.timers.set(timer, yes);
  }
}

test.each([
  ["which is cancelled when nobody waits", FakeClock],
  ["which keeps the process alive only while somebody waits", ProcessClock],
])(
  "each is told once at its moment, in the order of the moments and then of setting, by one timer, %s",
  async (_, Kind) => {
    const property = fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80, size: "max" }), async (steps) => {
      const clock = new Kind();
      const deadlines = new Deadlines(clock);
      const told: number[] = [];
      // The plain version: a list that is searched.
      let expected: { which: number; at: number; order: number }[] = [];
      let order = 0;
      const moments = Array.from({ length: CROWD + 180 }, (_, which) => ({
        moment: new Moment(),
        timed: { due: () => void told.push(which) },
      }));
      const due = (): number[] => {
        const now = clock.now();
        const over = expected.filter(({ at }) => at <= now).toSorted((a, b) => a.at - b.at || a.order - b.order);
        expected = expected.filter(({ at }) => at > now);
        return over.map(({ which }) => which);
      };
      const set = (which: number, inMs: number): void => {
        expected = expected.filter((one) => one.which !== which);
        expected.push({ which, at: clock.now() + inMs, order: (order += 1) });
        const { moment, timed } = moments[which] as (typeof moments)[number];
        deadlines.set(moment, timed, clock.now() + inMs, clock.now());
      };
      // Cleared ones stay in the heap, but not more of them than that: no sweep for each, and no leak.
      const standing = (): number => moments.filter(({ moment }) => moment.index !== -1).length;
      const clear = (which: number): void => {
        const before = standing();
        const { length } = expected;
        expected = expected.filter((one) => one.which !== which);
        deadlines.clear((moments[which] as (typeof moments)[number]).moment);
        const swept = expected.length < length && (expected.length === 0 || before > 2 * expected.length + 64);
        const [left, expectedLeft] = [standing(), swept ? expected.length : before];
        if (left !== expectedLeft) expect(left).toBe(expectedLeft);
      };
      for (const one of steps) {
        told.length = 0;
        if (one.kind === "set") set(one.which, one.inMs);
        else if (one.kind === "clear") clear(one.which);
        else if (one.kind === "crowd") {
          one.times.forEach((inMs, n) => set(CROWD + n, inMs));
          one.times.forEach((_, n) => n % 7 > 0 && clear(CROWD + n));
        } else if (one.kind === "pass") {
          await clock.advance(one.ms);
          expect(told).toEqual(due());
        } else {
          // Time jumps ahead of the timers, as on a suspended machine.
          clock.stall(one.ms);
          deadlines.look();
          expect(told).toEqual(due());
        }
        expect(deadlines.size).toBe(expected.length);
        const timers =
          clock instanceof ProcessClock ? [...clock.timers.values()].filter(Boolean).length : clock.pending;
        expect(timers).toBe(expected.length === 0 ? 0 : 1);
        expect(clock.pending).toBeLessThanOrEqual(1);
      }
      deadlines.stop();
      expect(clock.pending).toBe(0);
    });
    await fc.assert(property, { numRuns: 60 });
  },
);

test("who is set anew for a moment that is being told is told in another turn, and others are not kept waiting", async () => {
  const clock = new FakeClock();
  const deadlines = new Deadlines(clock);
  const told: string[] = [];
  const moment = new Moment();
  const eager: Timed = {
    due(now) {
      told.push("eager");
      if (told.length < 5) deadlines.set(moment, eager, now, now);
    },
  };
  deadlines.set(moment, eager, 10, 0);
  deadlines.set(new Moment(), { due: () => void told.push("other") }, 10, 0);
  await clock.advance(10);
  expect(told).toEqual(["eager", "other"]);
  await clock.advance(1);
  expect(told).toEqual(["eager", "other", "eager", "eager", "eager"]);
});

test("one who throws keeps nobody else from being told", async () => {
  const clock = new FakeClock();
  const deadlines = new Deadlines(clock);
  const told: string[] = [];
  const mistaken: Timed = {
    due() {
      throw new Error("a mistake");
    },
  };
  deadlines.set(new Moment(), mistaken, 1, 0);
  deadlines.set(new Moment(), { due: () => void told.push("other") }, 1, 0);
  await expect(clock.advance(1)).rejects.toThrow("a mistake");
  await clock.advance(1);
  expect(told).toEqual(["other"]);
});

test("whoever waits when all is stopped is told so, unless another who was told cleared it; what is set later has its time", async () => {
  const clock = new FakeClock();
  const deadlines = new Deadlines(clock);
  const told: string[] = [];
  const cleared = new Moment();
  const first: Timed = {
    due() {},
    stopped() {
      told.push("first");
      deadlines.clear(cleared);
      deadlines.set(new Moment(), { due: () => void told.push("late") }, 5, 0);
    },
  };
  deadlines.set(new Moment(), first, 1, 0);
  deadlines.set(cleared, { due() {}, stopped: () => void told.push("cleared") }, 2, 0);
  deadlines.stop();
  expect(told).toEqual(["first"]);
  await clock.advance(5);
  expect(told).toEqual(["first", "late"]);
  expect(clock.pending).toBe(0);
});

test("a clock whose timers keep a process alive: one timer for many calls, and none of them keeps it alive when nobody waits", () => {
  let made = 0;
  const alive: boolean[] = [];
  const clock: Clock = {
    now: () => 0,
    wallMs: () => 0,
    after: () => ({ n: (made += 1) }),
    cancel() {},
    keepAlive: (_, yes) => void alive.push(yes),
  };
  const deadlines = new Deadlines(clock);
  const moment = new Moment();
  const nobody = { due() {} };
  for (let n = 0; n < 100; n += 1) {
    deadlines.set(moment, nobody, 5000, 0);
    deadlines.clear(moment);
  }
  expect(made).toBe(1);
  expect(alive).toHaveLength(199);
  expect(alive.at(-1)).toBe(false);
  deadlines.set(moment, nobody, 5000, 0);
  expect(alive.at(-1)).toBe(true);
});

test("a moment beyond what a timer can count is waited for in several steps", () => {
  let now = 0.1;
  const timers: { readonly ms: number; readonly run: () => void }[] = [];
  const clock: Clock = {
    now: () => now,
    wallMs: () => now,
    after: (ms, run) => (timers.push({ ms, run }), {}),
    cancel() {},
  };
  const deadlines = new Deadlines(clock);
  const told: number[] = [];
  deadlines.set(new Moment(), { due: (at) => void told.push(at) }, now + 5 * 2 ** 31, now);
  // The list grows while it is gone through.
  for (const { ms, run } of timers) {
    expect(ms).toBeLessThanOrEqual(2 ** 31 - 1);
    now += ms;
    run();
  }
  expect(told).toHaveLength(1);
  expect(timers).toHaveLength(6);
});

test("a program that released its lock exits at once, and one that holds it lives on", () => {
  const run = (last: string): string =>
    execFileSync(process.execPath, [
      "--input-type=module",
      "-e",
      `import { connect } from "./dist/index.js";
      const locks = await connect("memory:");
      const hold = await locks.mutex("a").acquire({ leaseMs: 1000 });
      process.on("exit", () => console.log(hold.state));
      ${last}`,
    ]).toString();
  expect(run("await hold.release();")).toBe("released\n");
  // It is renewed for as long as the program lives: something else has to end it.
  expect(run("setTimeout(() => process.exit(), 1500).unref();")).toBe("held\n");
});
