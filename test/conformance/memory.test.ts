import { describe, test } from "vitest";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import {
  deadWaiterIsNotTheFirst,
  deadWaiterIsNotTold,
  deadWaiterIsPassedOver,
  deadWaiterLeaves,
} from "./dead-waiter.js";
import { overAtItsEnd } from "./lease-end.js";

describe("memory, by a fake clock", () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const setting = { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock };
  conformance(test, setting);
  test("random operations are answered as by the reference", () => compareWithReference({ ...setting, runs: 150 }));
  test("a dead waiter is not told that a lowered capacity dropped it", () => deadWaiterIsNotTold(setting));
  test("a dead waiter leaves when somebody asks about it", () => deadWaiterLeaves(setting));
  test("a release lets in the first waiter that lives", () => deadWaiterIsPassedOver(setting));
  test("whoever waits behind a dead one is the first, after a hand-over too", () => deadWaiterIsNotTheFirst(setting));
  test("a lease is over at its very end, for whatever is asked then", () => overAtItsEnd(setting));
});
