import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { MonotonicClock, SystemChance, SystemClock } from "../../src/core/clock.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { until } from "../servers/process.js";
import { pause } from "./rig.js";

/** A system clock over two hand-moved ones. */
function clocks() {
  const time = { monotonic: 1000, wall: 5_000_000 };
  const clock = new SystemClock(
    () => time.monotonic,
    () => time.wall,
  );
  const pass = (monotonicMs: number, wallMs: number): number => {
    const before = clock.now();
    time.monotonic += monotonicMs;
    time.wall += wallMs;
    return clock.now() - before;
  };
  return { clock, pass };
}

describe("the system's clock", () => {
  test("pitfall 12: elapsed time is the larger of monotonic and wall clock", () => {
    const { pass } = clocks();
    expect(pass(100, 100)).toBe(100);
    // Suspended for a minute: only the wall clock knows.
    expect(pass(5, 60_005)).toBe(60_005);
    // Set back by an hour: the monotonic clock counts on, and a later suspension is still seen.
    expect(pass(100, -3_600_000)).toBe(100);
    expect(pass(5, 30_005)).toBe(30_005);
    expect(pass(100, 100)).toBe(100);
  });

  test("rounding of the wall clock is not counted as a jump", () => {
    const { clock, pass } = clocks();
    const start = clock.now();
    for (let n = 0; n < 1000; n += 1) pass(0.5, n % 2);
    expect(clock.now() - start).toBeCloseTo(500, 5);
  });

  test("real timers run and can be cancelled", async () => {
    const clock = new SystemClock();
    const before = clock.now();
    let cancelled = true;
    clock.cancel(clock.after(1, () => (cancelled = false)));
    await new Promise<void>((resolve) => clock.after(5, resolve));
    expect(cancelled).toBe(true);
    expect(clock.now() - before).toBeGreaterThanOrEqual(4);
  });

  test("ids have 128 bits and do not repeat", () => {
    const chance = new SystemChance();
    const ids = new Set(Array.from({ length: 10_000 }, () => chance.id()));
    expect(ids.size).toBe(10_000);
    for (const id of ids) expect(id).toMatch(/^[A-Za-z0-9_-]{22}$/);
    expect(chance.fraction()).toBeLessThan(1);
  });
});

const HOUR = 3_600_000;

describe("clocks that jump", () => {
  test("when the wall clock jumps and comes back, the store's elapsed time does not overtake the holder's", async () => {
    let mono = 0;
    let wall = 1_000_000;
    const pass = (ms: number): void => void ((mono += ms), (wall += ms));
    const make = (): SystemClock =>
      new SystemClock(
        () => mono,
        () => wall,
      );
    // As the store's own clock does, by default: it does not look at the wall clock.
    const monotonic = Object.assign(new MonotonicClock(), { now: () => mono });
    const store = memoryStore(monotonic);
    const a = await connect(memoryEngine(store), { clock: make() });
    const b = await connect(memoryEngine(store), { clock: make() });
    const first = await a.mutex("m").acquire();
    pass(10);
    wall += 3_600_000; // an hour forward
    pass(10);
    const second = await b.mutex("m").tryAcquire(); // the store looks at its clock just now
    wall -= 3_600_000; // and back
    pass(10);
    expect([first.state, second?.state ?? "busy"]).not.toEqual(["held", "held"]);
    await a.close();
    await b.close();
  });

  test("after a suspension the signal aborts in the next timers phase", async () => {
    let jump = 0;
    const clock = new SystemClock(
      () => performance.now(),
      () => Date.now() + jump,
    );
    // Its timers, those that were left over too, come in twenty minutes.
    const locks = await connect(memoryEngine(), { clock, callTimeoutMs: HOUR / 3 });
    const hold = await locks.mutex("m").acquire({ leaseMs: HOUR });
    const { signal } = hold;
    await pause(20);
    jump = 2 * HOUR; // the machine slept; timers of Node did not count that
    await until("it is told", () => signal.aborted);
    expect(hold.state).toBe("lost"); // whoever looks knows
    await locks.close();
  });

  test("after a suspension new holds are renewed although an older, longer timer has not fired", async () => {
    let jump = 0;
    const clock = new SystemClock(
      () => performance.now(),
      () => Date.now() + jump,
    );
    const locks = await connect(memoryEngine(), { clock });
    const long = await locks.mutex("long").acquire({ leaseMs: HOUR });
    await pause(20);
    jump = HOUR / 2; // slept half an hour; the loop's timer is due in 20 minutes of waking time
    const short = await locks.mutex("short").acquire({ leaseMs: 3000 });
    let renewals = 0;
    locks.on("renewed", ({ name }) => (renewals += name === "short" ? 1 : 0));
    await until("it is renewed for longer than its lease", () => renewals >= 4);
    expect(long.state).not.toBe("lost");
    expect(short.state).toBe("held");
    await locks.close();
  });
});
