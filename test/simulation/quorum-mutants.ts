import type { Mutant } from "../unit/mutants.js";

const broken = (name: string, seed: number, rejectedBy: string, file: string, ...edits: [string, string][]) => ({
  name,
  seed,
  rejectedBy,
  file: `engines/quorum/${file}.js`,
  edits,
});

/** The quorum engine, with one rule taken out. Each must fail at its seed, by the rule named here. */
export const BROKEN_QUORUMS: readonly (Mutant & { readonly seed: number })[] = [
  broken("no drift margin", 928, "exclusion", "fence", [
    `return left - left * drift.driftRatio - drift.driftMs;`,
    `return left;`,
  ]),
  broken("release only to those that said yes", 5, "no orphan", "claimed", [
    `return sent === 0 || (this.settledAt(member) && (said === "busy" || said === "mismatch"));`,
    `return said !== "granted";`,
  ]),
  broken("no token write-back", 82, "token order", "take", [
    `const settled = yes.filter(counts);`,
    `const settled = yes;`,
  ]),
  broken(
    "repair without a quorum of kept",
    280,
    "lost is final",
    "renew",
    [`if (lost > tooFew)`, `if (false)`],
    [`if (renewal.kind !== "granted")\n            return renewal;`, ``],
    [`startedAt + renewal.leftMs`, `Infinity`],
    [`claimed.countsAt(member.index)).length`, `true).length`],
  ),
  broken("late copies count", 147_366, "lost is final", "renew", [
    `claimed.countsAt(member.index)).length`,
    `true).length`,
  ]),
  broken("no restart guard", 19, "exclusion", "take", [`if (answer.kind !== "granted" ||`, `if (true ||`]),
];
