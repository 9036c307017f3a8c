import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, expect, test } from "vitest";
import { writeBrokenCopy } from "../../scripts/broken-copy.js";
import type { Mutant } from "../unit/mutants.js";
import { BROKEN_QUORUMS, BROKEN_TURNS, UNTRUE_QUORUMS } from "./quorum-mutants.js";
import { simulateTruth } from "./quorum-truth.js";
import { TURNS } from "./quorum-turns.js";
import { type MakeEngine, simulateQuorum } from "./quorum-world.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-quorum-mutants-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** The engine of a copy of the library with one thing broken. */
async function brokenEngine({ name, file, edits }: Mutant): Promise<MakeEngine> {
  // Below a folder of that name the runner leaves files alone and Node itself loads them.
  const copy = join(folder, "node_modules", name.replaceAll(/\W+/g, "-"));
  writeBrokenCopy(
    copy,
    edits.map(([from, to]) => [file, from, to]),
  );
  const { quorumEngine } = await import(pathToFileURL(join(copy, "engines/quorum/index.js")).href);
  return quorumEngine;
}

// HOLDFAST_SEEDS=5000 npx vitest run quorum-mutants: looks for a seed, after a change of the simulation.
const more = Number(process.env.HOLDFAST_SEEDS ?? 0);

test.each(BROKEN_QUORUMS.map((mutant) => [mutant.seed, mutant.name, mutant] as const))(
  "seed %i rejects: %s",
  { timeout: 600_000 },
  async (seed, _name, mutant) => {
    const make = await brokenEngine(mutant);
    const failing = async (one: number): Promise<readonly string[]> => {
      const { violations } = await simulateQuorum(one, make);
      return violations.filter(({ rule }) => rule === mutant.rejectedBy).map(({ what }) => what);
    };
    for (let other = 1; other <= more; other += 1) {
      if ((await failing(other)).length === 0) continue;
      console.log(`${mutant.name}: seed ${other}`);
      return;
    }
    expect(await failing(seed)).not.toEqual([]);
    // The shipped engine passes where the broken one fails.
    expect((await simulateQuorum(seed)).violations).toEqual([]);
  },
);

const TRUTH_SEEDS = 60;

test.each(UNTRUE_QUORUMS.map((mutant) => [mutant.name, mutant] as const))(
  "what its members store rejects: %s",
  { timeout: 600_000 },
  async (_name, mutant) => {
    const make = await brokenEngine(mutant);
    for (let seed = 1; seed <= TRUTH_SEEDS; seed += 1) {
      const broken = (await simulateTruth(seed, make)).map(({ rule }) => rule);
      if (broken.length === 0) continue;
      expect(broken).toContain(mutant.rejectedBy);
      return;
    }
    expect.fail(`${TRUTH_SEEDS} seeds show nothing`);
  },
);

test.each(BROKEN_TURNS.map((mutant) => [mutant.name, mutant] as const))(
  "a scenario of the turn rejects: %s",
  { timeout: 600_000 },
  async (_name, mutant) => {
    const make = await brokenEngine(mutant);
    await expect(TURNS[mutant.rejectedBy]?.(make)).rejects.toThrow();
  },
);
