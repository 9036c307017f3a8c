import { expect, test } from "vitest";
import { compareQuorum } from "./quorum-reference.js";

// HOLDFAST_SEEDS=20000 npx vitest run test/simulation/quorum-reference
test("a quorum whose members agree answers as the reference", { timeout: 3_600_000 }, async () => {
  const first = Number(process.env.HOLDFAST_FIRST_SEED ?? 1);
  const count = Number(process.env.HOLDFAST_SEEDS ?? 400);
  const broken: string[] = [];
  for (let seed = first; seed < first + count && broken.length < 3; seed += 1) {
    await compareQuorum(seed).catch((error: unknown) => broken.push(`seed ${seed}: ${String(error)}`));
  }
  expect(broken).toEqual([]);
});
