import { expect, test } from "vitest";
import { simulateTruth } from "./quorum-truth.js";

// HOLDFAST_SEEDS=20000 npx vitest run test/simulation/quorum-truth
test("what the quorum says is what its members store", { timeout: 3_600_000 }, async () => {
  const first = Number(process.env.HOLDFAST_FIRST_SEED ?? 1);
  const count = Number(process.env.HOLDFAST_SEEDS ?? 200);
  const broken: object[] = [];
  for (let seed = first; seed < first + count; seed += 1) {
    const violations = await simulateTruth(seed);
    if (violations.length > 0) broken.push({ seed, violations });
  }
  expect(broken.slice(0, 5)).toEqual([]);
});
