import type { ClaimRequest, Engine, RenewAnswer, RenewRequest } from "../../core/engine.js";
import { leftOut, settleToken } from "./claim.js";
import { Claimed } from "./claim-record.js";
import { fenceOf, leftOf, stores, type Yes } from "./fence.js";
import { find } from "./inspect.js";
import type { Member } from "./member.js";
import type { Parts } from "./parts.js";
import { quorumSize } from "./size.js";
import { poll, QuorumNotReached, type Vote } from "./vote.js";

/** One heartbeat, with what is known about its claim. */
type Living = { readonly sign: RenewRequest; readonly claimed: Claimed; readonly needed: number };

/** A heartbeat for many claims: one call to each member. Each claim needs a quorum of `granted`. */
export async function renew(parts: Parts, signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
  const living = await Promise.all(signs.map((sign) => know(parts, sign)));
  const known = living.filter((one): one is Living => "claimed" in one);
  const answers = known.length === 0 ? [] : await renewKnown(parts, known);
  const inOrder = answers[Symbol.iterator]();
  return living.map((one) => ("claimed" in one ? (inOrder.next().value ?? leftOut()) : one));
}

async function renewKnown(parts: Parts, living: readonly Living[]): Promise<readonly RenewAnswer[]> {
  const { members, settings } = parts;
  const { clock } = settings;
  const startedAt = clock.now();
  // A call that carries many takes longer.
  const limitMs = settings.memberTimeoutMs + living.length;
  const votesOn = (votes: readonly Vote<readonly RenewAnswer[]>[], at: number): Vote<RenewAnswer>[] =>
    votes.map((vote) => voteOn(vote, at));
  const { decided, all } = poll<readonly RenewAnswer[], readonly Vote<readonly RenewAnswer[]>[]>(clock, {
    members,
    limitMs,
    async ask(engine, { index }) {
      const renewals = await engine.renew(living.map((one) => signTo(index, one)));
      living.forEach(({ claimed }, at) => claimed.hear(index, renewals[at] ?? leftOut()));
      return renewals;
    },
    decide(votes, open) {
      if (open === 0) return votes;
      const settled = living.every((one, at) => isDecided(one, votesOn(votes, at), members.length));
      return settled ? [...votes] : undefined;
    },
  });
  const votes = await decided;
  const repairs = all.then((complete) => (at: number) => votesOn(complete, at));
  return Promise.all(
    living.map(async (one, at) => {
      const renewal = await count(parts, one, votesOn(votes, at), limitMs);
      if (renewal.kind !== "granted") return renewal;
      // Only now that a quorum kept it: otherwise a claim that was lost would be revived (`pitfalls.md` 60).
      void repairs.then((of) => repair(parts, one, of(at), startedAt + renewal.leftMs));
      return renewal;
    }),
  );
}

/** A member whose token is known to be too low is raised on the way. */
function signTo(member: number, { sign, claimed }: Living): RenewRequest {
  const { token } = claimed.at(member);
  const { name, id, leaseMs } = sign;
  const low = claimed.token > 0 && token < claimed.token;
  return { name, id, ...(leaseMs === undefined ? {} : { leaseMs }), ...(low ? { tokenAtLeast: claimed.token } : {}) };
}

function voteOn(vote: Vote<readonly RenewAnswer[]>, at: number): Vote<RenewAnswer> {
  if ("failure" in vote) return vote;
  const { member, ms } = vote;
  const answer = vote.answer[at] ?? leftOut();
  return answer.kind === "unknown" ? { member, ms, failure: answer.cause } : { member, ms, answer };
}

/** What the members said: who granted, who has nothing, and how many of those know of a release. */
type Tally = { readonly yes: readonly Yes[]; readonly gone: readonly Member[]; readonly revoked: number };

function tally(votes: readonly Vote<RenewAnswer>[]): Tally {
  const yes: Yes[] = [];
  const gone: Member[] = [];
  let revoked = 0;
  for (const vote of votes) {
    if ("failure" in vote) continue;
    if (vote.answer.kind === "granted") yes.push({ member: vote.member, answer: vote.answer });
    else gone.push(vote.member);
    if (vote.answer.kind === "gone" && vote.answer.revoked === true) revoked += 1;
  }
  return { yes, gone, revoked };
}

/** Those that kept it all the time, or what is missing, decide at once. Copies that came late count when all were asked. */
function isDecided({ claimed, needed }: Living, votes: readonly Vote<RenewAnswer>[], members: number): boolean {
  const { yes, gone } = tally(votes);
  const kept = yes.filter(({ member }) => claimed.at(member.index).kept);
  return kept.length >= needed || gone.length > members - needed;
}

async function count(
  parts: Parts,
  { claimed, needed }: Living,
  votes: readonly Vote<RenewAnswer>[],
  limitMs: number,
): Promise<RenewAnswer> {
  const { yes, gone, revoked } = tally(votes);
  for (const { index } of gone) {
    claimed.forgotten ||= claimed.at(index).kept;
    claimed.at(index).kept = false;
  }
  const kept = yes.filter(({ member }) => claimed.countsAt(member.index)).length;
  const lost = gone.length + yes.length - kept;
  const tooFew = parts.members.length - needed;
  // So many that their word alone ended it; fewer may be a repair that was taken back.
  if (revoked > tooFew) return { kind: "gone", revoked: true };
  if (lost > tooFew) return { kind: "gone" };
  if (kept < needed) return { kind: "unknown", cause: new QuorumNotReached(needed, parts.members.length, votes) };
  try {
    const { token, yes: settled } = await settleToken(parts, claimed, yes, needed, limitMs);
    claimed.token = token;
    parts.highestToken = Math.max(parts.highestToken, token);
    return { kind: "granted", leftMs: leftOf(settled, needed, parts.settings), ...fenceOf(settled, token) };
  } catch (cause) {
    return { kind: "unknown", cause };
  }
}

/**
 * After a quorum said that it kept the claim, with what every member said. Who has it beside them counts from now on. A member
 * that lost it (it restarted, or was away when it was made) gets it again, where it fits, under the token it has; not after
 * the time for which the quorum is known to hold it.
 */
function repair(
  { settings }: Parts,
  { sign, claimed }: Living,
  votes: readonly Vote<RenewAnswer>[],
  until: number,
): void {
  const current = (): boolean => claimed.wanted && settings.clock.now() < until;
  const { yes, gone } = tally(votes);
  const { claim, token } = claimed;
  const again: ClaimRequest = { ...claim, wait: false, tokenAtLeast: token, leaseMs: sign.leaseMs ?? claim.leaseMs };
  for (const member of gone) {
    // Also where the claim was never answered: should that copy still arrive, it finds its own id, or the mark of its release.
    if (!current()) continue;
    quietly(member, async (engine) => {
      const answer = await claimed.send(member.index, engine, again);
      const useless = answer.kind === "granted" && !stores({ member, answer }, token, claimed.exclusive);
      if (useless) await engine.release({ name: claim.name, id: claim.id });
    });
  }
  for (const { member } of yes) {
    const place = claimed.at(member.index);
    place.kept = true;
    if (!current() || !place.unshrunk) continue;
    quietly(member, async (engine) => {
      if ((await engine.resize(claim, claim.units)) === "resized") place.unshrunk = false;
    });
  }
}

/** What fails here is tried again with the next heartbeat. */
function quietly(member: Member, call: (engine: Engine) => Promise<void>): void {
  member.ask(call).catch(() => {});
}

/** The claim behind a sign: this client's own, or, when it was handed over to it, as the members know it. */
async function know(parts: Parts, sign: RenewRequest): Promise<Living | RenewAnswer> {
  const { members, claims } = parts;
  const own = claims.get(sign);
  if (own !== undefined) {
    // A quorum may itself be a member of another one.
    if (own.token > 0) own.token = Math.max(own.token, sign.tokenAtLeast ?? 0);
    return { sign, claimed: own, needed: quorumSize(members.length, own.claim.capacity) };
  }
  const { name, id } = sign;
  try {
    const found = await find(parts, sign);
    if (found === undefined) return { kind: "gone" };
    const { units, capacity, owner, data, leftMs } = found;
    const leaseMs = sign.leaseMs ?? leftMs;
    const claim: ClaimRequest = {
      name,
      id,
      units,
      capacity,
      leaseMs,
      wait: false,
      owner,
      ...(data === undefined ? {} : { data }),
    };
    const claimed = new Claimed(claim, members.length);
    // Another process asked for it, and its copies may be on the way: nothing is settled, and whoever has it counts.
    for (const { index } of members) Object.assign(claimed.at(index), { sent: 2, kept: true });
    claims.set(claimed);
    return { sign, claimed, needed: quorumSize(members.length, capacity) };
  } catch (cause) {
    return { kind: "unknown", cause };
  }
}
