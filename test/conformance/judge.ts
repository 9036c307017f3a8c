import { test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { type ConformanceOptions, conformance } from "../../src/testing/conformance/index.js";
import { SOME_FAULTS } from "../../src/testing/faults.js";
import { stressTest } from "../../src/testing/stress-test.js";

export type Extent = {
  readonly runs?: number;
  readonly rounds?: number;
  readonly timeoutMs?: number;
};

/** Everything that the kit has for an engine in real time, all of it at once. */
export function judge(setting: ConformanceOptions, { runs = 5, rounds = 4, timeoutMs = 60_000 }: Extent = {}): void {
  conformance((name, run) => test.concurrent(name, run, timeoutMs), setting);
  const compare = () => compareWithReference({ ...setting, runs, withinMs: timeoutMs * 0.8 });
  test.concurrent("random operations are answered as by the reference", compare, timeoutMs);
  for (const [where, faults] of Object.entries({
    "on reliable connections": undefined,
    "on unreliable connections": SOME_FAULTS,
  })) {
    const title = `several clients at once break no rule ${where}`;
    test.concurrent(title, { timeout: timeoutMs }, async ({ expect }) => {
      const options = { ...setting, rounds, lateMs: 1000, ...(faults === undefined ? {} : { faults }) };
      const { violations, history } = await stressTest(options);
      expect(violations).toEqual([]);
      expect(history.holds.length).toBeGreaterThan(5);
    });
  }
}
