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
  broken("no drift margin", 1, "exclusion", "fence", [
    `return left - left * drift.driftRatio - drift.driftMs;`,
    `return left;`,
  ]),
  broken("release only to those that said yes", 1, "no orphan", "claimed", [
    `return sent === 0 || (this.settledAt(member) && (said === "busy" || said === "mismatch"));`,
    `return said !== "granted";`,
  ]),
  broken("no retry for members that did not hear the release", 1, "no orphan", "leaving", [
    `.then((votes) => this.#insist(votes, tell, until))`,
    `.then(() => {})`,
  ]),
  broken("no token write-back", 1, "token order", "take", [`if (settled.length >= needed)`, `if (settled.length > 0)`]),
  broken(
    "repair without a quorum of kept",
    1,
    "lost is final",
    "renew",
    [`if (gone.length > parts.members.length - needed)`, `if (false)`],
    [`if (renewal.kind !== "granted")\n            return renewal;`, ``],
    [`startedAt + renewal.leftMs`, `Infinity`],
  ),
  broken("a majority for every semaphore (pitfall 28)", 1, "exclusion", "size", [
    `return Math.floor((unitsThatFit * members) / (unitsThatFit + 1)) + 1;`,
    `return Math.floor(members / 2) + 1;`,
  ]),
  broken("no restart guard", 1, "exclusion", "take", [`if (restartGuardMs === 0 ||`, `if (true ||`]),
  broken("time left counted by the luckiest member", 1, "exclusion", "fence", [`[needed - 1]`, `[0]`]),
  broken("any token will do for a shared hold", 1, "floor", "fence", [
    `return exclusive ? answer.token >= token : answer.token === token;`,
    `return answer.token >= token;`,
  ]),
  broken("a failed id comes back", 1, "no orphan", "take", [`if (leaving.has(claim))`, `if (false)`]),
];
