import { describe, expect, test } from "vitest";
import { SystemChance, SystemClock } from "../../src/core/clock.js";

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
