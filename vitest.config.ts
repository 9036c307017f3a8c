import { defineConfig } from "vitest/config";
import LongestFirst from "./scripts/longest-first.js";

// What fails when somebody else keeps the cores busy, and hardly does so itself: a quorum's short limits, a cluster that
// must get so much done in so many seconds.
const CALM = [
  "test/process/{fleet-versions,recipes}.test.ts",
  "test/faults/{etcd-cluster,galera,quorum,quorum-mixed}.test.ts",
];

// What keeps both cores busy: fleets of processes, measurements.
const ALONE = [
  "test/process/cli/load.test.ts",
  "test/process/{compare,examples-servers,flash-sale,lab,node-versions,redis-waiters,sqlite-crowd}.test.ts",
];

export default defineConfig({
  test: {
    reporters: [
      "./test/servers/install-first.ts",
      "default",
      "./scripts/failures-at-once.ts",
      "./scripts/closing-line.ts",
    ],
    // Only what hangs runs into these: on a busy machine a second's work takes many.
    testTimeout: 240_000,
    hookTimeout: 120_000,
    maxWorkers: 2,
    sequence: { sequencer: LongestFirst },
    // Of the tests of one file that may run side by side: most of them wait for a lease to end.
    maxConcurrency: 16,
    projects: [
      {
        // The longest ones are conformance on real servers, and wait for leases to end most of the time.
        extends: true,
        test: {
          name: "code",
          include: ["test/*.test.ts", "test/{unit,conformance,simulation,fence}/**/*.test.ts"],
          maxWorkers: 4,
        },
      },
      {
        // Servers and processes that are killed and stopped. Most of the time they wait for a lease to end, so more at once
        // than there are cores.
        extends: true,
        test: {
          name: "processes",
          include: ["test/{process,faults,browser}/**/*.test.ts"],
          exclude: [...CALM, ...ALONE],
          maxWorkers: 4,
          sequence: { groupOrder: 1 },
        },
      },
      {
        extends: true,
        test: { name: "calm", include: CALM, maxWorkers: 3, sequence: { groupOrder: 2 } },
      },
      {
        extends: true,
        test: { name: "alone", include: ALONE, maxWorkers: 1, sequence: { groupOrder: 3 } },
      },
    ],
  },
});
