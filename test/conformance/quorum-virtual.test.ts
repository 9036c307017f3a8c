import { test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { EXCUSED } from "./quorum-excuses.js";

/** Five members in one process, by a fake clock: fast enough to judge mutants, too. */
const clock = new FakeClock();
const stores = Array.from({ length: 5 }, () => memoryStore(clock));
const engine = (): Promise<Engine> =>
  quorumEngine(
    stores.map((store) => memoryEngine(store)),
    { clock },
  );
conformance(test, { engine, leaseStepMs: 1000, clock, excused: EXCUSED });
