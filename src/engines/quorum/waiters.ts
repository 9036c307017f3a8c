// Beyond the fixed set of files: whoever waits stands in one member's queue, and votes when its turn has come.
import type { ClaimRequest, RenewAnswer } from "../../core/engine.js";
import type { ClaimRecord } from "./claim-record.js";
import { hasRoom } from "./inspect.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import type { Rounds } from "./round.js";
import type { Turn } from "./turn.js";
import type { Turns } from "./turns.js";
import { missingAnswer } from "./vote.js";

/** A claim that waits, with its place. */
export type Waiter = { readonly record: ClaimRecord; readonly turn: Turn };

/** The heartbeats of claims that wait: one call to each member at which some stand. */
export class Waiters {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #rounds: Rounds;
  readonly #turns: Turns;

  constructor(members: Members, settings: Settings, rounds: Rounds, turns: Turns) {
    this.#members = members;
    this.#settings = settings;
    this.#rounds = rounds;
    this.#turns = turns;
  }

  async renew(waiters: readonly Waiter[]): Promise<readonly RenewAnswer[]> {
    const places = new Map<Member, Waiter[]>();
    for (const waiter of waiters) {
      // Who has its turn votes at once: the heartbeats of what it holds will keep it.
      if (waiter.turn.state !== "queued") continue;
      places.set(waiter.turn.member, [...(places.get(waiter.turn.member) ?? []), waiter]);
    }
    const renewed = new Map<Member, Promise<void>>();
    for (const [member, there] of places) renewed.set(member, this.#keepPlaces(member, there));
    return Promise.all(
      waiters.map(async (waiter) => {
        if (waiter.turn.state === "queued") await renewed.get(waiter.turn.member);
        return this.#proceed(waiter);
      }),
    );
  }

  /** A member that does not answer keeps no place: whoever stood there asks anew, where the next one keeps the order. */
  async #keepPlaces(member: Member, waiters: readonly Waiter[]): Promise<void> {
    const { decided } = this.#members.ask<readonly RenewAnswer[], readonly RenewAnswer[] | null>({
      members: [member],
      limitMs: this.#members.timeoutMs + waiters.length,
      ask: (engine) => engine.renew(waiters.map(({ turn }) => turn.ref)),
      decide: ([vote]) => (vote !== undefined && "answer" in vote ? vote.answer : null),
    });
    const answers = await decided;
    waiters.forEach(({ turn }, at) => {
      // Pushed meanwhile.
      if (turn.state === "granted") return;
      const answer = answers?.[at] ?? missingAnswer();
      turn.note(answer.kind === "unknown" ? { kind: "gone" } : answer);
    });
  }

  async #proceed({ record, turn }: Waiter): Promise<RenewAnswer> {
    if (turn.state === "none") return { kind: "gone" };
    const { claim } = record;
    if (turn.state === "queued" && !(await this.#isFree(record, turn))) return this.#turns.queued(record, turn);
    const now = this.#settings.clock.now();
    // Asked for again while it votes: both are told what comes of it.
    const { since, outcome } = (record.voting ??= {
      since: now,
      outcome: this.#vote(record, turn, claim).finally(() => (record.voting = null)),
    });
    const answer = await outcome;
    // A lease counts from when its votes were sent, and not from when they were asked for again: that may be much later.
    return answer.kind === "granted" ? { ...answer, leftMs: answer.leftMs - (now - since) } : answer;
  }

  /**
   * The first in the queue looks whether the lock is free all the same: whoever had it may not reach this member, or may be gone.
   * Free twice, so long apart that somebody with the turn would have voted in between.
   */
  async #isFree(record: ClaimRecord, turn: Turn): Promise<boolean> {
    const { clock } = this.#settings;
    if (turn.nextMs === null || !(await hasRoom(this.#members, record.claim))) {
      record.freeSince = null;
      return false;
    }
    record.freeSince ??= clock.now();
    return clock.now() - record.freeSince >= this.#turns.votingMs;
  }

  async #vote(record: ClaimRecord, turn: Turn, claim: ClaimRequest): Promise<RenewAnswer> {
    const { clock } = this.#settings;
    const isLast = (): boolean => clock.now() - (record.votedAt ?? 0) >= this.#turns.votingMs;
    // Where the process stood still its last suggestion is old: members that forgot would take a token below what others wrote with.
    if (record.votedAt === null || isLast()) record.suggestion = 0;
    record.votedAt ??= clock.now();
    try {
      const outcome = await this.#rounds.run(record, claim);
      if (outcome.kind === "granted") {
        this.#turns.leave(record);
        return outcome;
      }
      // Somebody holds it without the turn. What it has of the votes must not be in the way for longer.
      if (outcome.kind !== "busy" || isLast()) return { kind: "gone" };
      return this.#turns.queued(record, turn);
    } catch (cause) {
      return isLast() ? { kind: "gone" } : { kind: "unknown", cause };
    }
  }
}
