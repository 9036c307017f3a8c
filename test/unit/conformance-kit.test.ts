import { expect, test } from "vitest";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import { runCase } from "../../src/testing/conformance/index.js";
import type { Kit, Setting } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { intercept } from "../../src/testing/intercept.js";

/** What the suite makes of a machine that stands still. */
const STEP_MS = 100;

/** The whole process does nothing, as on a machine where others get all the time there is. */
function standStill(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

async function judged(
  run: (kit: Kit, tries: number) => Promise<void>,
  setting: Partial<Setting> = {},
): Promise<{ readonly tries: number; readonly failure: unknown }> {
  const store = memoryStore();
  const engine = async (): Promise<Engine> => memoryEngine(store);
  let tries = 0;
  const judging = runCase((kit) => run(kit, (tries += 1)), { engine, leaseStepMs: STEP_MS, ...setting });
  const failure = await judging.then(
    () => null,
    (error: unknown) => error,
  );
  return { tries, failure };
}

const wrong = new Error("the engine is wrong");

/** A short lease, and something that takes longer. */
async function livesOn(kit: Kit, meanwhile: (engine: Engine, claim: ClaimRequest) => Promise<void>): Promise<void> {
  const engine = await kit.open();
  const claim = kit.claim(kit.name(), { leaseMs: 2 * kit.step });
  await engine.claim(claim);
  await meanwhile(engine, claim);
  const [renewal] = await engine.renew([claim]);
  if (renewal?.kind !== "granted") throw wrong;
}

test("a case that fails because the process stood still is run again", async () => {
  const { tries, failure } = await judged((kit, n) =>
    livesOn(kit, async () => {
      if (n === 1) standStill(4 * STEP_MS);
    }),
  );
  expect({ tries, failure }).toEqual({ tries: 2, failure: null });
});

test("a case that fails because the store was slow is run again", async () => {
  let calls = 0;
  const store = memoryStore();
  const slow = async (): Promise<Engine> =>
    intercept(memoryEngine(store), {
      async renew(call) {
        calls += 1;
        if (calls === 1) await new Promise((resolve) => setTimeout(resolve, 4 * STEP_MS));
        return call();
      },
    });
  const { tries, failure } = await judged((kit) => livesOn(kit, async () => {}), { engine: slow });
  expect({ tries, failure }).toEqual({ tries: 2, failure: null });
});

test("a case that always fails is not run for ever, however busy the machine is", async () => {
  const { tries, failure } = await judged((kit) => livesOn(kit, async () => standStill(4 * STEP_MS)));
  expect({ tries, failure }).toEqual({ tries: 5, failure: wrong });
});

test("by a fake clock nothing is run again: there no machine is busy", async () => {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  const setting = { engine: async () => memoryEngine(store), clock };
  const { tries, failure } = await judged((kit) => livesOn(kit, () => clock.advance(4 * STEP_MS)), setting);
  expect({ tries, failure }).toEqual({ tries: 1, failure: wrong });
});
