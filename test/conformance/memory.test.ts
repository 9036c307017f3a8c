import { describe, test } from "vitest";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { rehearse } from "../../src/testing/rehearse.js";

const BAD = {
  delayMs: 50,
  lostRequest: 0.1,
  lostAnswer: 0.1,
  hang: 0.5,
  duplicate: 0.2,
  lostPush: 0.3,
  duplicatePush: 0.2,
};

describe("memory, by a fake clock", () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const setting = { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock };
  conformance(test, setting);
  test("random operations are answered as by the reference", () => compareWithReference({ ...setting, runs: 300 }));
});

describe("memory, in real time", () => {
  const store = memoryStore();
  const setting = { engine: async () => memoryEngine(store), leaseStepMs: 500 };
  conformance((name, run) => test.concurrent(name, run), setting);
  test.concurrent("random operations are answered as by the reference", () =>
    compareWithReference({ ...setting, runs: 5 }));
  test.concurrent("several clients at once break no rule", async ({ expect }) => {
    const { violations, history } = await rehearse({ ...setting, rounds: 5 });
    expect(violations).toEqual([]);
    expect(history.holds.length).toBeGreaterThan(20);
  });
  test.concurrent("several clients at once break no rule on a bad wire", async ({ expect }) => {
    const { violations, history } = await rehearse({ ...setting, rounds: 5, weather: BAD });
    expect(violations).toEqual([]);
    expect(history.holds.length).toBeGreaterThan(10);
  });
});
