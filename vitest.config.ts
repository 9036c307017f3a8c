import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    reporters: ["default", "./scripts/closing-line.ts"],
    testTimeout: 20_000,
    maxWorkers: 2,
    // Of the tests of one file that may run side by side: most of them wait for a lease to end.
    maxConcurrency: 16,
  },
});
