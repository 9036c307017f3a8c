import { markdownTable } from "../lib/table.js";
import type { Result } from "./soak.js";

const WIRE = ["cut", "stall", "silence", "deafen", "delay"] as const;

/** What was done and found, and what was used: at the start of the steady state → at the end → when everybody had left. */
export function tableOf(results: readonly Result[]): string {
  const done = markdownTable(
    [
      "store",
      "holds",
      "holds/s",
      "lost",
      "refused writes",
      "kills",
      "pauses",
      "cuts",
      "restarts",
      "freezes",
      "violations",
    ],
    results.map(({ store, seconds, counts, faults, violations }) => [
      store,
      counts.holds,
      Math.round(counts.holds / seconds),
      counts.lost,
      `${counts.refused} of ${counts.writes}`,
      faults.kill,
      faults.pause,
      WIRE.reduce((sum, kind) => sum + faults[kind], 0),
      faults.restart,
      faults.freeze,
      violations.length,
    ]),
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  );
  const used = markdownTable(
    ["store", "heap MB", "sockets", "timers", "files", "in the store"],
    results.map(({ store, before, start, end, after }) => {
      const [one, two] = [start?.process, end?.process];
      const mb = (bytes: number | undefined): string => (bytes === undefined ? "?" : (bytes / 2 ** 20).toFixed(1));
      const both = (what: "sockets" | "timers" | "files"): string => `${one?.[what] ?? "?"} → ${two?.[what] ?? "?"}`;
      const kinds = Object.keys({ ...before, ...start?.store });
      const inStore = kinds.map(
        (kind) =>
          `${kind} ${before[kind] ?? "?"} → ${start?.store[kind] ?? "?"} → ${end?.store[kind] ?? "?"}${after === null ? "" : ` → ${after[kind] ?? "?"}`}`,
      );
      return [
        store,
        `${mb(one?.heap)} → ${mb(two?.heap)}`,
        both("sockets"),
        both("timers"),
        both("files"),
        inStore.join(", "),
      ];
    }),
    [1, 2, 3, 4],
  );
  return `${done}\n\n${used}`;
}
