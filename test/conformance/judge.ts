import { test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { type ConformanceOptions, conformance } from "../../src/testing/conformance/index.js";
import { ROUGH } from "../../src/testing/faults.js";
import { rehearse } from "../../src/testing/rehearse.js";

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
  for (const [where, weather] of Object.entries({ "on a good wire": undefined, "on a bad wire": ROUGH })) {
    const title = `several clients at once break no rule ${where}`;
    test.concurrent(title, { timeout: timeoutMs }, async ({ expect }) => {
      const options = { ...setting, rounds, lateMs: 1000, ...(weather === undefined ? {} : { weather }) };
      const { violations, history } = await rehearse(options);
      expect(violations).toEqual([]);
      expect(history.holds.length).toBeGreaterThan(5);
    });
  }
}
