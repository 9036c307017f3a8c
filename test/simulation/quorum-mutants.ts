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
  [
    "useless repairs stay",
    "repaired",
    "renew",
    [`else\n                await engine.release(`, `else if (false)\n                await engine.release(`],
  ],
  [
    "repairs with the lease of the claim alone",
    "repaired",
    "renew",
    [`if (request.leaseMs !== undefined)`, `if (false)`],
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
    "round",
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
  broken("no drift margin", 126, "exclusion", "fence", [
    `return left - left * drift.driftRatio - drift.driftMs;`,
    `return left;`,
  ]),
  broken("release only to those that said yes", 5, "no orphan", "claim-record", [
    `return sent === 0 || (this.allArrivedAt(member) && (answered === "busy" || answered === "mismatch"));`,
    `return answered !== "granted";`,
  ]),
  broken("no token write-back", 11, "token order", "fence", [
    `const storing = yes.filter(counts);`,
    `const storing = yes;`,
  ]),
  broken(
    "repair without a quorum of kept",
    1325,
    "lost is final",
    "renew",
    [`if (lost > tooFew)`, `if (false)`],
    [`if (answer.kind !== "granted")\n                return answer;`, ``],
    [`startedAt + answer.leftMs`, `Infinity`],
    [`record.countsAt(member.index)).length`, `true).length`],
  ),
  broken("no restart guard", 13, "exclusion", "round", [`if (answer.kind !== "granted" ||`, `if (true ||`]),
];

const brokenTurn = (name: string, rejectedBy: string, file: string, ...edits: [string, string][]): Mutant => ({
  name,
  rejectedBy,
  file: `engines/quorum/${file}.js`,
  edits,
});

/** The rules of the turn, each left out. Each must fail in the scenario of `quorum-turns.ts` that is named here. */
export const BROKEN_TURNS: readonly Mutant[] = [
  brokenTurn(
    "nobody keeps the order",
    "who waits stands in order, asks nobody meanwhile, and is woken by the release",
    "members",
    [`member.keepsOrder && (`, `false && (`],
  ),
  brokenTurn(
    "the turn is asked for before the votes",
    "one round takes a free lock and one gives it back: the turn goes with the vote",
    "claim",
    [`this.#turns.isContended(name)`, `true`],
  ),
  brokenTurn(
    "votes without the turn count",
    "who lets go and asks again at once stands behind those who wait",
    "round",
    [`if (asked?.isQueued)`, `if (false)`],
  ),
  brokenTurn(
    "votes after a pause suggest the token of before it",
    "who votes again after its process stood still suggests a token of now",
    "waiters",
    [`record.votedAt === null || isLast()`, `record.votedAt === null`],
  ),
  brokenTurn(
    "a token that was written back in vain is forgotten",
    "a token that was written back in vain counts: it may still arrive",
    "fence",
    [`record.writtenBack = token;`, ``],
  ),
  brokenTurn(
    "nobody waits for the keeper's word",
    "pitfall 39: the keeper hangs: one claim waits for its limit, the next ones for another keeper's word",
    "round",
    [`if (!votes.some(({ member }) => member === asked.member))`, `if (false)`],
  ),
  brokenTurn(
    "who does not wait overtakes",
    "who does not wait overtakes nobody, not even between a release and the next one's votes",
    "round",
    [`Array.isArray(outcome) && asked.refusal !== null ? asked.refusal : outcome`, `outcome`],
  ),
  brokenTurn(
    "the turn is not given back",
    "who waits stands in order, asks nobody meanwhile, and is woken by the release",
    "release",
    [`this.#turn = turn?.mayStand ? turn : null;`, `this.#turn = null;`],
  ),
  brokenTurn(
    "the turn is given back last",
    "one round takes a free lock and one gives it back: the turn goes with the vote",
    "release",
    [
      `[keeper, ...voters.filter((member) => member !== keeper)]`,
      `[...voters.filter((member) => member !== keeper), keeper]`,
    ],
  ),
  brokenTurn(
    "a turn of capacity one for everybody",
    "two may hold a semaphore of two; the third is woken by whoever lets go first",
    "turn",
    ["id, units, capacity, leaseMs, wait, owner };", "id, units: 1, capacity: 1, leaseMs, wait, owner };"],
  ),
  brokenTurn(
    "no place for what a member did not answer",
    "the keeper goes away under those who wait: they go on elsewhere, one at a time",
    "waiters",
    [`turn.note(answer.kind === "unknown" ? { kind: "gone" } : answer);`, `turn.note(answer);`],
  ),
  brokenTurn(
    "a keeper that hangs stays the keeper",
    "pitfall 39: the keeper hangs: one claim waits for its limit, the next ones for another keeper's word",
    "member",
    [`this.#hasQueue && this.#failures === 0`, `this.#hasQueue`],
  ),
  brokenTurn(
    "a push is not told",
    "who waits stands in order, asks nobody meanwhile, and is woken by the release",
    "turns",
    [`this.#wake(record);\n        }\n        return true;`, `}\n        return true;`],
  ),
  brokenTurn("heartbeats do not ask for the turn", "a push that is lost costs a heartbeat, not the turn", "waiters", [
    `if (turn.state === "queued" && !(await this.#isFree(record, turn)))`,
    `if (turn.nextMs === null && record.votedAt === null)`,
  ]),
  brokenTurn(
    "the first in the queue never looks",
    "a holder that cannot tell the keeper lets nobody wait for its whole lease",
    "waiters",
    [`return clock.now() - record.freeSince >= this.#turns.votingMs;`, `return false;`],
  ),
  brokenTurn(
    "a forgotten turn stays forgotten",
    "a holder whose turn was forgotten stands in the queue again with its next heartbeat",
    "renew",
    [`if (turn?.state === "none" && current())`, `if (false)`],
  ),
  brokenTurn(
    "what was handed over has no turn",
    "a lock taken over from another process gives the turn back, too",
    "renew",
    [`record.turn = this.#turns.handedOver(request);`, ``],
  ),
  brokenTurn(
    "votes are kept for ever by whoever has the turn",
    "who has its turn and not the votes keeps what it has of them for a moment only",
    "waiters",
    [`(record.votedAt ?? 0) >= this.#turns.votingMs`, `(record.votedAt ?? 0) >= Infinity`],
  ),
  brokenTurn("a bare majority is not told", "a hold on a bare majority says so, until others have it too", "standing", [
    `votes > needed ||`,
    `votes >= needed ||`,
  ]),
  brokenTurn(
    "spare votes are not asked for",
    "with spareVotes a bare majority is not enough, and one member may forget",
    "round",
    [`+ spareVotes`, ``],
  ),
];
