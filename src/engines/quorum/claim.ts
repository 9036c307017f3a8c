import type { ClaimAnswer, ClaimRequest, Engine, RenewAnswer } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import { Claimed } from "./claim-record.js";
import { fenceOf, leftOf, stores, tokenOf, type Yes } from "./fence.js";
import type { Parts } from "./parts.js";
import { quorumSize } from "./size.js";
import { poll, QuorumNotReached, type Vote } from "./vote.js";

/**
 * Suggested tokens lie an hour ahead of the client's clock: members mint at least their own time, and agree in one round as
 * long as their clocks are not further ahead. For as long a member that lost a claim can be given the very same token again.
 */
const TOKEN_LEAD_US = 3_600_000_000;

/** One round: note the time, ask all members at once, count. What does not come to a grant is given back everywhere. */
export async function take(parts: Parts, claim: ClaimRequest): Promise<ClaimAnswer> {
  const { members, claims, leaving, settings } = parts;
  // Its round has failed, and it is on its way out.
  if (leaving.has(claim)) return { kind: "gone" };
  const { clock } = settings;
  const startedAt = clock.now();
  const needed = quorumSize(members.length, claim.capacity);
  const limitMs = Math.min(settings.memberTimeoutMs, claim.leaseMs / 4);
  const claimed = claims.get(claim) ?? new Claimed(claim, members.length);
  claims.set(claimed);
  const clockToken = Math.floor(clock.wallMs() * 1000) + TOKEN_LEAD_US;
  const tokenAtLeast = Math.max(parts.highestToken + 1, clockToken, claim.tokenAtLeast ?? 0);
  const asked: ClaimRequest = { ...claim, wait: false, tokenAtLeast };
  try {
    const { decided } = poll<ClaimAnswer, ClaimAnswer | readonly Yes[]>(clock, {
      members,
      limitMs,
      ask(engine, { index }) {
        const answer = claimed.send(index, engine, asked);
        return settings.restartGuardMs === 0 ? answer : ofAge(engine, answer, settings.restartGuardMs);
      },
      // Those that came after the decision, too: all of them were asked before it.
      heard(vote) {
        if (yesOf(vote).length > 0) claimed.at(vote.member.index).kept = true;
      },
      decide: (votes) => outcomeOf(votes, members.length, needed),
    });
    const outcome = await decided;
    if ("kind" in outcome) {
      letGo(parts, claimed, needed, true);
      return outcome;
    }
    const { token, yes } = await settleToken(parts, claimed, outcome, needed, limitMs);
    const leftMs = leftOf(yes, needed, settings);
    if (clock.now() - startedAt >= leftMs) throw new Error("the votes took longer than the lease");
    claimed.token = token;
    parts.highestToken = Math.max(parts.highestToken, token);
    return { kind: "granted", leftMs, ...fenceOf(yes, token) };
  } catch (error) {
    // Whoever is told that nobody knows may send the same claim again: it must find marks.
    letGo(parts, claimed, needed, false);
    throw error;
  }
}

function letGo({ claims, leaving, members }: Parts, claimed: Claimed, needed: number, settled: boolean): void {
  // Asked for again although it was granted: what is held is not given back by a question.
  if (claimed.token > 0) return;
  claims.take(claimed.claim);
  const going = { ref: claimed.claim, members, needed, claimed, settled };
  if (settled) leaving.leave(going).catch(() => {});
  else leaving.fail(going);
}

/**
 * Enough yes-votes, or the answer once there can be no more of them. Busy counts as busy only if those that answered could
 * have made a quorum: otherwise the failures decided, and nobody knows (`pitfalls.md` 19).
 */
function outcomeOf(
  votes: readonly Vote<ClaimAnswer>[],
  members: number,
  needed: number,
): ClaimAnswer | readonly Yes[] | undefined {
  const yes: Yes[] = [];
  const noes: Exclude<ClaimAnswer, { kind: "granted" }>[] = [];
  const failures: unknown[] = [];
  for (const vote of votes) {
    if ("failure" in vote) failures.push(vote.failure);
    else if (vote.answer.kind === "granted") yes.push({ member: vote.member, answer: vote.answer });
    else noes.push(vote.answer);
  }
  if (yes.length >= needed) return yes;
  const spare = members - needed;
  if (failures.length > spare) {
    // There is no hurry to say that nobody knows: every vote is told.
    if (votes.length < members) return undefined;
    // Refused by so many that asking again is of no use.
    const refusals = failures.filter(isRefusal);
    throw refusals.length > spare ? refusals[0] : new QuorumNotReached(needed, members, votes);
  }
  if (noes.length + failures.length <= spare) return undefined;
  const gone = noes.find(({ kind }) => kind === "gone");
  if (gone !== undefined) return gone;
  // At a few members a claim that comes or goes may have left another capacity; a name in use has it at a majority.
  const mismatches = noes.filter(({ kind }) => kind === "mismatch");
  const majority = quorumSize(members, 1);
  if (mismatches.length >= majority) return mismatches[0];
  const open = members - votes.length;
  if (mismatches.length > 0 && mismatches.length + open >= majority) return undefined;
  const busy = noes.find((no) => no.kind === "busy") ?? { kind: "busy" };
  // Read when it is told: by then the votes that came after the decision are among them.
  return { ...busy, why: () => new QuorumNotReached(needed, members, votes) };
}

/** Without what it knew, a member could grant again what somebody holds (`pitfalls.md` 38). */
async function ofAge(engine: Engine, asked: Promise<ClaimAnswer>, restartGuardMs: number): Promise<ClaimAnswer> {
  const answer = await asked;
  if (answer.kind !== "granted" || engine.guarantees.survivesRestart || engine.serverInfo === undefined) return answer;
  // Asked after the grant: a restart in between is seen.
  const { upMs } = await engine.serverInfo();
  if (upMs !== undefined && upMs < restartGuardMs)
    throw new Error(`no vote yet: it started ${Math.round(upMs)} ms ago`);
  return answer;
}

/** A grant counts when a quorum stores its token. */
export async function settleToken(
  { settings, members }: Parts,
  claimed: Claimed,
  yes: readonly Yes[],
  needed: number,
  limitMs: number,
): Promise<{ readonly token: number; readonly yes: readonly Yes[] }> {
  const token = tokenOf(yes, needed, claimed.token);
  const counts = (one: Yes): boolean => stores(one, token, claimed.exclusive);
  const settled = yes.filter(counts);
  if (settled.length >= needed) return { token, yes: settled };
  const lower = yes.filter(({ answer }) => answer.token < token).map(({ member }) => member);
  const { name, id } = claimed.claim;
  const { decided } = poll<RenewAnswer, readonly Yes[]>(settings.clock, {
    members: lower,
    limitMs,
    async ask(engine, { index }) {
      const [renewal = leftOut()] = await engine.renew([{ name, id, tokenAtLeast: token }]);
      claimed.hear(index, renewal);
      return renewal;
    },
    decide(votes, open) {
      const raised = [...settled, ...votes.flatMap(yesOf).filter(counts)];
      if (raised.length >= needed) return raised;
      if (raised.length + open >= needed) return undefined;
      throw new QuorumNotReached(needed, members.length, votes, "the token could not be written back to a quorum");
    },
  });
  return { token, yes: await decided };
}

function yesOf(vote: Vote<ClaimAnswer | RenewAnswer>): readonly Yes[] {
  return "answer" in vote && vote.answer.kind === "granted" ? [{ member: vote.member, answer: vote.answer }] : [];
}

export function leftOut(): RenewAnswer {
  return { kind: "unknown", cause: new Error("the engine left an answer out") };
}
