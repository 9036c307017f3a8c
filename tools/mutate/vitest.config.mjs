// The tests that judge Stryker's mutants: those that the target names, in one worker and one module graph, because loading
// the library again for each file takes longer than most of these tests.
import { relative } from "node:path";
import { defineConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";
import { globbed } from "./lib/files.mjs";

const include = JSON.parse(process.env.HOLDFAST_MUTATE_TESTS ?? "[]");

/** In the order of the target's list, which has the fastest first: the first test that fails ends a mutant's run. */
class AsListed extends BaseSequencer {
  async sort(files) {
    const place = ({ moduleId, project }) =>
      include.findIndex((pattern) => globbed(pattern)(relative(project.config.root, moduleId)));
    return files.toSorted((one, two) => place(one) - place(two));
  }
}

export default defineConfig({
  test: {
    include,
    sequence: { sequencer: AsListed },
    isolate: false,
    setupFiles: ["tools/mutate/setup.mjs"],
    // A mutant that never settles a promise runs into this. Stryker's own limit ends the whole worker, which costs seconds.
    testTimeout: Number(process.env.HOLDFAST_MUTATE_TIMEOUT_MS ?? 60_000),
    hookTimeout: 20_000,
  },
});
