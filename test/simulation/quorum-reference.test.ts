import { expect, test } from "vitest";
import { compareQuorum } from "./quorum-reference.js";

/** Seeds that once differed, with what they showed. They stay. */
const ONCE_DIFFERENT: readonly [seed: number, what: string][] = [
  [1338, "a hold that was handed over got the higher token of one member, because that one answered among the first"],
  [
    1499,
    "a shared claim sent again after its grant failed, because a member with a higher token answered among the first",
  ],
  [
    1666,
    "the reference had forgotten an idle name sooner than the members, and with it which token is the lowest for others",
  ],
  [3844, "a place in the queue that was made anew by an extending heartbeat had that lease ever after"],
];

test.each(ONCE_DIFFERENT)("seed %i: %s", async (seed) => {
  await expect(compareQuorum(seed)).resolves.toBeUndefined();
});

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
