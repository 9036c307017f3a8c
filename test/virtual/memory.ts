import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** The memory engine by a clock that is moved. */
export async function virtual(): Promise<{ setting: Setting; close: () => Promise<void> }> {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  return { setting: { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock }, close: async () => {} };
}
