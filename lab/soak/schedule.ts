import { SeededChance } from "../../src/testing/seeded-chance.js";

/** What may happen to a process, to its connections, and to a server. */
export const FAULTS = ["kill", "pause", "cut", "stall", "silence", "deafen", "delay", "restart", "freeze"] as const;
export type FaultKind = (typeof FAULTS)[number];

/** One thing that happens: so long after the one before, to this process or server, for this part of the longest time. */
export type Planned = {
  readonly afterMs: number;
  readonly kind: FaultKind;
  readonly worker: number;
  readonly server: number;
  readonly part: number;
};

const WEIGHTS: Readonly<Record<FaultKind, number>> = {
  kill: 4,
  pause: 4,
  cut: 3,
  stall: 2,
  silence: 2,
  deafen: 2,
  delay: 1,
  restart: 1,
  freeze: 1,
};

/**
 * What happens in a soak, by seed alone: two runs of one seed have the same plan, whatever the machine did meanwhile. What
 * cannot be done when its turn comes (the process is dead already) is left out.
 */
export function* plan(
  seed: number,
  possible: readonly FaultKind[],
  { leaseMs, workers, servers }: { readonly leaseMs: number; readonly workers: number; readonly servers: number },
): Generator<Planned, never> {
  const chance = new SeededChance(seed);
  const urn = possible.flatMap((kind) => Array<FaultKind>(WEIGHTS[kind]).fill(kind));
  for (;;) {
    yield {
      afterMs: Math.round(leaseMs * (0.15 + chance.fraction() * 0.9)),
      kind: urn[chance.between(0, urn.length - 1)] ?? "pause",
      // The first is never killed, so that somebody's memory is seen to stay as it is for the whole run.
      worker: chance.between(0, workers - 1),
      server: chance.between(0, Math.max(0, servers - 1)),
      part: chance.fraction(),
    };
  }
}
