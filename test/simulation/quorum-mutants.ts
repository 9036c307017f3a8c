import type { Mutant } from "../unit/mutants.js";

const broken = (name: string, seed: number, rejectedBy: string, file: string, ...edits: [string, string][]) => ({
  name,
  seed,
  rejectedBy,
  file: `engines/quorum/${file}.js`,
  edits,
});

/** Those that only somebody who looks into the members can tell: `simulateTruth` must reject each at one of its first seeds. */
export const UNTRUE_QUORUMS: readonly Mutant[] = [
  ["the longest time left, not the needed-th", "time left", "fence", [`[needed - 1] ?? 0`, `[0] ?? 0`]],
  ["one more than the needed-th time left", "granted", "fence", [`[needed - 1] ?? 0`, `[needed] ?? 0`]],
  ["useless repairs stay", "repaired", "renew", [`if (useless)`, `if (false)`]],
  [
    "repairs with the lease of the claim",
    "repaired",
    "renew",
    [`request.leaseMs ?? claim.leaseMs };`, `claim.leaseMs };`],
  ],
  [
    "no repairs",
    "repaired",
    "renew",
    [`if (!current())\n            continue;\n        inBackground`, `continue;\n        inBackground`],
  ],
  [
    "a few mismatches are never decided",
    "answered",
    "claim",
    [`mismatches.length > 0 && mismatches.length + open >= majority`, `mismatches.length > 0`],
  ],
  [
    "everybody is told of units that became fewer",
    "one call each",
    "renew",
    [`!current() || !atMember.missedResize`, `!current()`],
  ],
  [
    "tokens that were told are forgotten",
    "no call in vain",
    "claim-record",
    [`answer.kind === "granted" ? answer.token : 0`, `0`],
  ],
  ["what was answered is forgotten", "no call in vain", "claim-record", [`record.answered = answer.kind;`, ``]],
  [
    "a member without room for the capacity is told of the release",
    "no call in vain",
    "claim-record",
    [`answered === "busy" || answered === "mismatch"`, `answered === "busy"`],
  ],
  ["a set without the others", "live", "fence", [`if (one !== answer.token)`, `if (false)`]],
  ["no sets", "live", "fence", [`answer.live === undefined)`, `true)`]],
  ["a set for everybody", "live", "fence", [`if (yes.every(({ answer }) => answer.live === undefined))`, `if (false)`]],
].map(([name, rejectedBy, file, ...edits]) => ({
  name: name as string,
  rejectedBy: rejectedBy as string,
  file: `engines/quorum/${file as string}.js`,
  edits: edits as [string, string][],
}));

/** The quorum engine, with one rule taken out. Each must fail at its seed, by the rule named here. */
export const BROKEN_QUORUMS: readonly (Mutant & { readonly seed: number })[] = [
  broken("no drift margin", 1660, "exclusion", "fence", [
    `return left - left * drift.driftRatio - drift.driftMs;`,
    `return left;`,
  ]),
  broken("release only to those that said yes", 5, "no orphan", "claim-record", [
    `return sent === 0 || (this.allArrivedAt(member) && (answered === "busy" || answered === "mismatch"));`,
    `return answered !== "granted";`,
  ]),
  broken("no token write-back", 25, "token order", "fence", [
    `const storing = yes.filter(counts);`,
    `const storing = yes;`,
  ]),
  broken(
    "repair without a quorum of kept",
    69,
    "lost is final",
    "renew",
    [`if (lost > tooFew)`, `if (false)`],
    [`if (answer.kind !== "granted")\n                return answer;`, ``],
    [`startedAt + answer.leftMs`, `Infinity`],
    [`record.countsAt(member.index)).length`, `true).length`],
  ),
  broken("no restart guard", 44, "exclusion", "claim", [`if (answer.kind !== "granted" ||`, `if (true ||`]),
];
