import { describe, test } from "vitest";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

describe("memory, by a fake clock", () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  conformance(test, { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock });
});

describe("memory, in real time", () => {
  const store = memoryStore();
  conformance((name, run) => test.concurrent(name, run), { engine: async () => memoryEngine(store), leaseStepMs: 300 });
});
