// Beyond the fixed set of files: claim and renew agree on the token, the floor and the time left.
import type { Clock } from "../../core/clock.js";
import type { ClaimAnswer, Fence, Granted, RenewAnswer } from "../../core/engine.js";
import type { ClaimRecord } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import { missingAnswer, type Vote } from "./vote.js";

/**
 * Suggested tokens lie an hour ahead of the client's clock: members mint at least their own time, and agree in one round as
 * long as their clocks are not further ahead. For as long a member that lost a claim can be given the very same token again.
 */
const TOKEN_LEAD_US = 3_600_000_000;

/** A member that granted. */
export type Yes = { readonly member: Member; readonly answer: Granted };

export function isYes(vote: Vote<ClaimAnswer | RenewAnswer>): boolean {
  return "answer" in vote && vote.answer.kind === "granted";
}

function yesOf(vote: Vote<ClaimAnswer | RenewAnswer>): readonly Yes[] {
  return "answer" in vote && vote.answer.kind === "granted" ? [{ member: vote.member, answer: vote.answer }] : [];
}

/** The token that counts, and the grants that store it. */
type Agreed = { readonly token: number; readonly yes: readonly Yes[] };

/** Which tokens this client suggests, and when a quorum stores one. */
export class Tokens {
  readonly #members: Members;
  readonly #clock: Clock;
  /** Seen in any grant: no suggestion goes below. */
  #highest = 0;

  constructor(members: Members, clock: Clock) {
    this.#members = members;
    this.#clock = clock;
  }

  suggest(atLeast = 0): number {
    const clockToken = Math.floor(this.#clock.wallMs() * 1000) + TOKEN_LEAD_US;
    return Math.max(this.#highest + 1, clockToken, atLeast);
  }

  /** The claim is granted with this token. */
  accept(record: ClaimRecord, token: number): void {
    record.token = token;
    this.#highest = Math.max(this.#highest, token);
  }

  /** Where those that store it are fewer than a quorum it is written back first. */
  agree(record: ClaimRecord, yes: readonly Yes[], needed: number, limitMs: number): Agreed | Promise<Agreed> {
    const token = Math.max(tokenOf(yes, needed, record.token), record.writtenBack);
    const counts = (one: Yes): boolean => stores(one, token, record.exclusive);
    const storing = yes.filter(counts);
    if (storing.length >= needed) return { token, yes: storing };
    return this.#writeBack(record, token, { yes, storing, needed, limitMs });
  }

  async #writeBack(
    record: ClaimRecord,
    token: number,
    {
      yes,
      storing,
      needed,
      limitMs,
    }: { yes: readonly Yes[]; storing: readonly Yes[]; needed: number; limitMs: number },
  ): Promise<Agreed> {
    record.writtenBack = token;
    const lower = yes.filter(({ answer }) => answer.token < token).map(({ member }) => member);
    const { name, id } = record.claim;
    const { decided } = this.#members.ask<RenewAnswer, readonly Yes[]>({
      members: lower,
      limitMs,
      async ask(engine, { index }) {
        const [answer = missingAnswer()] = await engine.renew([{ name, id, tokenAtLeast: token }]);
        record.note(index, answer);
        return answer;
      },
      decide: (votes, open) => {
        const raised = [...storing, ...votes.flatMap(yesOf).filter((one) => stores(one, token, record.exclusive))];
        if (raised.length >= needed) return raised;
        if (raised.length + open >= needed) return undefined;
        const why = "the token could not be written back to a quorum";
        throw new QuorumNotReached(needed, this.#members.count, votes, why);
      },
    });
    return { token, yes: await decided };
  }
}

/**
 * Whether a member stores what counts. Alone there, a higher token harms nobody. Beside others it would raise the floor that
 * the member answers them with, above the token this holder writes with: then it must be the very same.
 */
export function stores({ answer }: Yes, token: number, exclusive: boolean): boolean {
  return exclusive ? answer.token >= token : answer.token === token;
}

/**
 * The token that counts: the one this claim has, unless a quorum stores a higher one: then another client raised it, or its
 * lease had ended and this is another grant under its id. Else the one a quorum agrees on; else the highest, which then has
 * to be written back. Every later quorum shares a member with the one that stores it, and that member mints a higher one.
 */
function tokenOf(yes: readonly Yes[], needed: number, known: number): number {
  if (known > 0 && yes.filter(({ answer }) => answer.token > known).length < needed) return known;
  return agreedToken(yes, needed) ?? Math.max(...yes.map(({ answer }) => answer.token));
}

function agreedToken(yes: readonly Yes[], needed: number): number | undefined {
  const counts = new Map<number, number>();
  for (const { answer } of yes) counts.set(answer.token, (counts.get(answer.token) ?? 0) + 1);
  for (const [token, count] of counts) if (count >= needed) return token;
  return undefined;
}

/** Whether these grants are enough, whatever others answer: a quorum of them has the token of this hold, or one and the same. */
export function areEnough(record: ClaimRecord, yes: readonly Yes[], needed: number): boolean {
  if (yes.length < needed) return false;
  if (record.token === 0) return agreedToken(yes, needed) !== undefined;
  return yes.filter(({ answer }) => !record.isTooHigh(answer.token)).length >= needed;
}

/**
 * What a resource may refuse everything below. Each member answers with the lowest live token it knows; every live holder
 * is held by a quorum, which shares a member with ours, so the lowest of these answers fences nobody who lives.
 */
export function fenceOf(yes: readonly Yes[], token: number): Fence {
  const floor = Math.min(token, ...yes.map(({ answer }) => answer.floor));
  if (yes.every(({ answer }) => answer.live === undefined)) return { token, floor };
  const live = new Set([token]);
  for (const { answer } of yes) for (const one of answer.live ?? []) if (one !== answer.token) live.add(one);
  return { token, floor, live: [...live].toSorted((one, two) => one - two) };
}

/** Until when a quorum holds it: the `needed`-th longest time left, less what clocks may differ by. */
export function leftOf(yes: readonly Yes[], needed: number, drift: { driftRatio: number; driftMs: number }): number {
  const left = yes.map(({ answer }) => answer.leftMs).toSorted((one, two) => two - one)[needed - 1] ?? 0;
  return left - left * drift.driftRatio - drift.driftMs;
}
