// The tests that judge Stryker's mutants: those that the target names, in one worker and one module graph, because loading
// the library again for each file takes longer than most of these tests.
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: JSON.parse(process.env.HOLDFAST_MUTATE_TESTS ?? "[]"),
    isolate: false,
    setupFiles: ["tools/mutate/setup.mjs"],
    // A mutant that never settles a promise runs into this. Stryker's own limit ends the whole worker, which costs seconds.
    testTimeout: Number(process.env.HOLDFAST_MUTATE_TIMEOUT_MS ?? 60_000),
    hookTimeout: 20_000,
  },
});
