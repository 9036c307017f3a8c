import { FAULTS } from "./faults.js";
import type { Recorded } from "./judge.js";
import type { Circumstances } from "./lib/results.js";
import { type Cell, type CellRun, isBlank } from "./matrix.js";
import { ENGINES } from "./rigs.js";

/** Who believed to hold when, and what the resource said; in milliseconds from the fault. The first is the holder. */
export type Timeline = {
  readonly holds: readonly {
    readonly who: number;
    readonly from: number;
    readonly until: number | null;
    readonly deadline: number;
    readonly ended: string;
  }[];
  readonly writes: readonly {
    readonly who: number;
    readonly at: number;
    /** It believed to hold the lock, so the unfenced resource took it. */
    readonly unfenced: boolean;
    readonly fenced: boolean;
  }[];
  readonly stopped: { readonly from: number; readonly until: number } | null;
};

export type Outcomes = Cell & { readonly round: number; readonly timeline: Timeline | null };

/** What `lab/results/faults.json` holds. */
export type Results = {
  readonly circumstances: Circumstances;
  readonly seed: number;
  readonly repeat: number;
  readonly tookMs: number;
  readonly cells: readonly Outcomes[];
  readonly blanks: readonly {
    readonly engine: string;
    readonly fault: string;
    readonly short: string;
    readonly why: string;
  }[];
};

export function resultsOf(runs: readonly CellRun[], about: Omit<Results, "cells" | "blanks">): Results {
  const rounds = new Map<string, number>();
  const cells = runs.map(({ cell, recorded, faultAt, stoppedAt }) => {
    const key = `${cell.engine} ${cell.fault}`;
    const round = rounds.get(key) ?? 0;
    rounds.set(key, round + 1);
    const timeline = recorded === null ? null : timelineOf(recorded, faultAt, stoppedAt);
    return rounded({ ...cell, round, timeline });
  });
  const blanks = ENGINES.flatMap(({ name: engine }) =>
    FAULTS.flatMap(({ name: fault, expected }) => {
      const reason = expected[engine];
      return isBlank(reason) ? [{ engine, fault, ...reason }] : [];
    }),
  );
  return { ...about, cells, blanks };
}

function timelineOf({ history, writes }: Recorded, faultAt: number, stoppedAt: number | null): Timeline {
  const since = (at: number): number => at - faultAt;
  const pause = history.pauses.find(({ client, to }) => client === 0 && stoppedAt !== null && to > stoppedAt);
  return {
    holds: history.holds.map(({ client, grantedAt, endedAt, deadline, ended }) => ({
      who: client,
      from: since(grantedAt),
      until: endedAt === null ? null : since(endedAt),
      deadline: since(deadline),
      ended,
    })),
    writes: writes.map(({ hold, at, checked, fenced }) => ({
      who: hold.client,
      at: since(at),
      unfenced: checked,
      fenced,
    })),
    stopped: stoppedAt === null || pause === undefined ? null : { from: since(stoppedAt), until: since(pause.to) },
  };
}

/** Tenths of milliseconds are more than anybody reads. */
function rounded<T>(value: T): T {
  return JSON.parse(
    JSON.stringify(value, (_, one: unknown) =>
      typeof one === "number" && !Number.isInteger(one) ? Math.round(one * 10) / 10 : one,
    ),
  ) as T;
}
