import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    reporters: ["./test/servers/install-first.ts", "default", "./scripts/closing-line.ts"],
    testTimeout: 20_000,
    // Hooks start servers and remove whole folders: on a busy machine ten seconds are soon over.
    hookTimeout: 60_000,
    maxWorkers: 2,
    // Of the tests of one file that may run side by side: most of them wait for a lease to end.
    maxConcurrency: 16,
    projects: [
      {
        extends: true,
        test: { name: "code", include: ["test/*.test.ts", "test/{unit,conformance,simulation,fence}/**/*.test.ts"] },
      },
      {
        // Whole processes that are killed and stopped want the machine to themselves.
        extends: true,
        test: {
          name: "processes",
          include: ["test/{process,faults}/**/*.test.ts"],
          maxWorkers: 1,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
