import type { Clock } from "../../core/clock.js";
import type { ClaimRef, ClaimRequest, Engine, RenewAnswer, RenewRequest } from "../../core/engine.js";
import { ClaimRecord, type ClaimRecords } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import { areEnough, fenceOf, leftOf, stores, type Tokens, type Yes } from "./fence.js";
import { find } from "./inspect.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import type { Standings } from "./standing.js";
import type { Turn } from "./turn.js";
import type { Turns } from "./turns.js";
import { missingAnswer, type Vote } from "./vote.js";
import type { Waiter, Waiters } from "./waiters.js";

/** One heartbeat, with what is known about its claim. */
type Heartbeat = { readonly request: RenewRequest; readonly record: ClaimRecord; readonly needed: number };

/** A heartbeat for many claims: one call to each member. Each claim needs a quorum of `granted`. */
export class Renewals {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #records: ClaimRecords;
  readonly #tokens: Tokens;
  readonly #turns: Turns;
  readonly #waiters: Waiters;
  readonly #standings: Standings;

  constructor(
    members: Members,
    settings: Settings,
    records: ClaimRecords,
    tokens: Tokens,
    turns: Turns,
    waiters: Waiters,
    standings: Standings,
  ) {
    this.#standings = standings;
    this.#members = members;
    this.#settings = settings;
    this.#records = records;
    this.#tokens = tokens;
    this.#turns = turns;
    this.#waiters = waiters;
  }

  async renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const all = await Promise.all(requests.map((request) => this.#heartbeatOf(request)));
    const held = all.filter((one): one is Heartbeat => "needed" in one);
    const waiting = all.filter((one): one is Waiter => "turn" in one);
    const [ofHolds, ofWaiters] = await Promise.all([
      held.length === 0 ? [] : this.#send(held),
      waiting.length === 0 ? [] : this.#waiters.renew(waiting),
    ]);
    const [holds, waiters] = [ofHolds.values(), ofWaiters.values()];
    return all.map((one) => {
      if (!("record" in one)) return one;
      return ("turn" in one ? waiters : holds).next().value ?? missingAnswer();
    });
  }

  async #send(heartbeats: readonly Heartbeat[]): Promise<readonly RenewAnswer[]> {
    const { clock } = this.#settings;
    const members = this.#members;
    const startedAt = clock.now();
    // A call that carries many takes longer.
    const limitMs = members.timeoutMs + heartbeats.length;
    const votesOn = (votes: readonly Vote<readonly RenewAnswer[]>[], at: number): Vote<RenewAnswer>[] =>
      votes.map((vote) => voteOn(vote, at));
    const { decided, all } = members.ask<readonly RenewAnswer[], readonly Vote<readonly RenewAnswer[]>[]>({
      limitMs,
      async ask(engine, { index }) {
        const turns = turnsAt(index, heartbeats);
        const requests = heartbeats.map((one) => requestTo(index, one));
        const answers = await engine.renew([
          ...requests,
          ...turns.map(({ request: { leaseMs }, record: { turn } }) => ({
            ...turn.ref,
            ...(leaseMs === undefined ? {} : { leaseMs }),
          })),
        ]);
        turns.forEach(({ record: { turn } }, at) => turn.note(answers[heartbeats.length + at] ?? missingAnswer()));
        heartbeats.forEach(({ record }, at) => record.note(index, answers[at] ?? missingAnswer()));
        return answers;
      },
      decide(votes, open) {
        if (open === 0) return votes;
        const everyOne = heartbeats.every((one, at) => isDecided(one, votesOn(votes, at), members.count));
        return everyOne ? [...votes] : undefined;
      },
    });
    const votes = await decided;
    const repairs = all.then((complete) => (at: number) => votesOn(complete, at));
    return Promise.all(
      heartbeats.map(async (one, at) => {
        const answer = await this.#count(one, votesOn(votes, at), limitMs);
        if (answer.kind !== "granted") return answer;
        // Only now that a quorum kept it: otherwise a claim that was lost would be revived (`pitfalls.md` 60).
        void repairs.then((of) => {
          this.#standings.note(one.record, tally(of(at)).yes.length);
          repair(clock, one, of(at), startedAt + answer.leftMs);
        });
        return answer;
      }),
    );
  }

  async #count(
    { record, needed }: Heartbeat,
    votes: readonly Vote<RenewAnswer>[],
    limitMs: number,
  ): Promise<RenewAnswer> {
    const members = this.#members.count;
    const { yes, gone, revoked } = tally(votes);
    for (const { index } of gone) {
      record.forgotten ||= record.at(index).kept;
      record.at(index).kept = false;
    }
    const kept = yes.filter(({ member }) => record.countsAt(member.index)).length;
    const lost = gone.length + yes.length - kept;
    const tooFew = members - needed;
    // So many that their release alone ended it; fewer may be a repair that was taken back.
    if (revoked > tooFew) return { kind: "gone", revoked: true };
    if (lost > tooFew) return { kind: "gone" };
    if (kept < needed) return { kind: "unknown", cause: new QuorumNotReached(needed, members, votes) };
    try {
      const { token, yes: storing } = await this.#tokens.agree(record, yes, needed, limitMs);
      this.#tokens.accept(record, token);
      return { kind: "granted", leftMs: leftOf(storing, needed, this.#settings), ...fenceOf(storing, token) };
    } catch (cause) {
      return { kind: "unknown", cause };
    }
  }

  /** The claim behind a request: this client's own, or, when it was handed over to it, as the members know it. */
  async #heartbeatOf(request: RenewRequest): Promise<Heartbeat | Waiter | RenewAnswer> {
    const members = this.#members;
    const own = this.#records.get(request);
    if (own?.waiting && own.turn !== null) return { record: own, turn: own.turn };
    if (own !== undefined) {
      // A quorum may itself be a member of another one.
      if (own.token > 0) own.token = Math.max(own.token, request.tokenAtLeast ?? 0);
      return { request, record: own, needed: members.quorum(own.claim.capacity) };
    }
    const { name, id } = request;
    try {
      const found = await find(members, request);
      if (found === undefined) return { kind: "gone" };
      const { units, capacity, owner, data, leftMs } = found;
      const leaseMs = request.leaseMs ?? leftMs;
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
      const record = new ClaimRecord(claim);
      // Another process made it, and its copies may be on the way: any number may arrive, and whoever has it counts.
      for (const { index } of members.all) Object.assign(record.at(index), { sent: 2, kept: true });
      record.turn = this.#turns.handedOver(request);
      this.#records.set(record);
      return { request, record, needed: members.quorum(capacity) };
    } catch (cause) {
      return { kind: "unknown", cause };
    }
  }
}

/** The heartbeats whose turn stands at this member: they go in the same call. */
function turnsAt(member: number, heartbeats: readonly Heartbeat[]) {
  return heartbeats.filter(
    ({ record: { turn } }) => turn?.member.index === member && turn.mayStand,
  ) as readonly (Heartbeat & {
    readonly record: { readonly turn: Turn };
  })[];
}

/** A member whose token is known to be too low is raised on the way. One whose token is too high lets it run out. */
function requestTo(member: number, { request, record }: Heartbeat): RenewRequest {
  const { token } = record.at(member);
  const { name, id } = request;
  const low = record.token > 0 && token < record.token;
  // A lease end never moves back: this asks, and changes nothing.
  const leaseMs = record.isTooHigh(token) ? 1 : request.leaseMs;
  return { name, id, ...(leaseMs === undefined ? {} : { leaseMs }), ...(low ? { tokenAtLeast: record.token } : {}) };
}

function voteOn(vote: Vote<readonly RenewAnswer[]>, at: number): Vote<RenewAnswer> {
  if ("failure" in vote) return vote;
  const { member, ms } = vote;
  const answer = vote.answer[at] ?? missingAnswer();
  return answer.kind === "unknown" ? { member, ms, failure: answer.cause } : { member, ms, answer };
}

/** What the members answered: who granted, who has nothing, and how many of those know of a release. */
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
function isDecided({ record, needed }: Heartbeat, votes: readonly Vote<RenewAnswer>[], members: number): boolean {
  const { yes, gone } = tally(votes);
  const kept = yes.filter(({ member }) => record.at(member.index).kept);
  return areEnough(record, kept, needed) || gone.length > members - needed;
}

/**
 * After a quorum answered that it kept the claim, with every member's answer. Who has it beside them counts from now on. A
 * member that lost it (it restarted, or was away when it was made) gets it again, where it fits, under the token it has; not
 * after the time for which the quorum is known to hold it.
 */
function repair(
  clock: Clock,
  { request, record }: Heartbeat,
  votes: readonly Vote<RenewAnswer>[],
  until: number,
): void {
  const current = (): boolean => !record.released && clock.now() < until;
  const { yes, gone } = tally(votes);
  const { claim, token } = record;
  const again: ClaimRequest = { ...claim, wait: false, tokenAtLeast: token };
  // This heartbeat alone may extend it. The lease it is claimed with is the one that the next heartbeats renew.
  const extend = async (engine: Engine, { name, id }: ClaimRef): Promise<void> => {
    if (request.leaseMs !== undefined) await engine.renew([{ name, id, leaseMs: request.leaseMs }]);
  };
  for (const member of gone) {
    // Also where the claim was never answered: should that copy still arrive, it finds its own id, or the tombstone of its release.
    if (!current()) continue;
    inBackground(member, async (engine) => {
      const answer = await record.send(member.index, engine, again);
      if (answer.kind !== "granted") return;
      if (stores({ member, answer }, token, record.exclusive)) await extend(engine, claim);
      else await engine.release({ name: claim.name, id: claim.id });
    });
  }
  // Forgotten by its member: whoever asks from now on is to stand behind this hold.
  const { turn } = record;
  if (turn?.state === "none" && current()) {
    inBackground(turn.member, async (engine) => {
      await turn.ask(engine, { ...again, wait: true });
      await extend(engine, turn.ref);
    });
  }
  for (const one of yes) {
    const { member } = one;
    const atMember = record.at(member.index);
    atMember.kept = true;
    if (!current() || !atMember.missedResize || !stores(one, token, record.exclusive)) continue;
    inBackground(member, async (engine) => {
      if ((await engine.resize(claim, claim.units)) === "resized") atMember.missedResize = false;
    });
  }
}

/** What fails here is tried again with the next heartbeat. */
function inBackground(member: Member, call: (engine: Engine) => Promise<void>): void {
  member.ask(call).catch(() => {});
}
