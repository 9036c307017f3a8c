import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { writeBrokenCopy } from "../../scripts/broken-copy.js";
import type * as memory from "../../src/engines/memory/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import type * as testing from "../../src/testing/index.js";
import { BROKEN_CORES, BROKEN_ENGINES, type Mutant } from "./mutants.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-mutants-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** A copy of the library with one thing broken, kit and all. */
async function broken({ name, file, edits }: Mutant): Promise<typeof testing & typeof memory> {
  // Below a folder of that name the runner leaves files alone and Node itself loads them.
  const copy = join(folder, "node_modules", name.replaceAll(/\W+/g, "-"));
  writeBrokenCopy(
    copy,
    edits.map(([from, to]) => [file, from, to]),
  );
  const load = (path: string) => import(pathToFileURL(join(copy, path)).href);
  return { ...(await load("testing/index.js")), ...(await load("engines/memory/index.js")) };
}

describe("the conformance suite rejects", () => {
  test.each(BROKEN_ENGINES.map((mutant) => [mutant.name, mutant] as const))(
    "%s",
    { timeout: 120_000 },
    async (_name, mutant) => {
      const { conformanceCases, FakeClock, memoryEngine, memoryStore, runCase } = await broken(mutant);
      const rejecting = conformanceCases.find((one) => one.name === mutant.rejectedBy);
      if (rejecting === undefined) throw new Error(`no case is called "${mutant.rejectedBy}"`);
      const clock = new FakeClock();
      const store = memoryStore(clock);
      const judged = runCase(rejecting.run, { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock });
      await expect(judged).rejects.toThrow(/./);
    },
  );
});

describe("the comparison with the reference rejects", () => {
  test.each(BROKEN_ENGINES.map((mutant) => [mutant.name, mutant] as const))("%s", async (_name, mutant) => {
    const { memoryEngine, memoryStore } = await broken(mutant);
    const clock = new FakeClock();
    const store = memoryStore(clock);
    const setting = { engine: async () => memoryEngine(store), leaseStepMs: 1000, clock };
    const compared = compareWithReference({ ...setting, runs: 1000, seed: 1, shrink: false });
    await expect(compared).rejects.toThrow(/seed|did not arrive/);
  });
});

describe("the simulation rejects", () => {
  const all = BROKEN_CORES.map((mutant) => [mutant.name, mutant] as const);
  test.each(all)("%s", { timeout: 300_000 }, async (_name, mutant) => {
    const { memoryEngine, memoryStore, simulate } = await broken(mutant);
    const rules = new Set<string>();
    const seeds = [mutant.seed ?? 1, ...Array.from({ length: 2000 }, (_, n) => n + 1)];
    for (const seed of seeds) {
      if (rules.has(mutant.rejectedBy)) break;
      const { violations } = await simulate(seed, (clock) => {
        const store = memoryStore(clock);
        return { open: () => memoryEngine(store) };
      });
      for (const { rule } of violations) rules.add(rule);
    }
    expect([...rules]).toContain(mutant.rejectedBy);
  });
});
