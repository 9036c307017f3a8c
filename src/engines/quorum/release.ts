import type { ClaimRef, Engine, ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import type { ClaimRecord, ClaimRecords } from "./claim-record.js";
import { QuorumNotReached } from "./errors.js";
import type { Member } from "./member.js";
import type { Members } from "./members.js";
import type { Settings } from "./options.js";
import { Retries } from "./retry.js";
import { keyOf, type Turn } from "./turn.js";
import type { Turns } from "./turns.js";
import type { Poll, Vote } from "./vote.js";

/** After the lease a claim ends by itself; a while longer for the clocks. */
const AFTER_LEASE_MS = 5_000;

/** The core asks again after a second at most; a process that stood still for longer finds the tombstones. */
const ASKED_AGAIN_MS = 10_000;

/** One claim to give back. */
export type ReleaseOrder = {
  readonly ref: ClaimRef;
  readonly needed: number;
  readonly record: ClaimRecord | undefined;
  /** Its place in the queue; the record's, where there is one. */
  readonly turn?: Turn | null;
  /** It was claimed exactly once, and that call was answered. */
  readonly claimedOnce: boolean;
};

/** One release at all members where anything of the claim may be or arrive, and what they answered. */
class PendingRelease {
  /** So many have answered that the outcome is known. */
  decided = false;
  /** First the one that keeps its turn, for which the release waits in any case. */
  readonly concerned: readonly Member[];
  /** Those of them that may have its vote. */
  readonly #voters: readonly Member[];
  readonly #turn: Turn | null;
  readonly #members: Members;
  readonly #order: ReleaseOrder;
  /** By the member's index; also of those that answered after their limit. */
  readonly #answers: (ReleaseAnswer | undefined)[] = [];

  constructor(members: Members, order: ReleaseOrder) {
    const { record } = order;
    const turn = order.turn ?? record?.turn ?? null;
    this.#members = members;
    this.#order = order;
    this.#turn = turn?.mayStand ? turn : null;
    const voters = members.all.filter(({ index }) => record === undefined || !record.absentFrom(index));
    this.#voters = voters;
    const keeper = this.#turn?.member;
    this.concerned = keeper === undefined ? voters : [keeper, ...voters.filter((member) => member !== keeper)];
  }

  unanswered(member: Member): boolean {
    return this.#answers[member.index] === undefined;
  }

  send(member: Member): Promise<ReleaseAnswer> {
    return member.ask(this.#sendTo);
  }

  readonly #sendTo = (engine: Engine, member: Member): Promise<ReleaseAnswer> =>
    this.#release(engine, member).then((answer) => (this.#answers[member.index] = answer));

  #release(engine: Engine, member: Member): Promise<ReleaseAnswer> {
    const { ref, record, claimedOnce } = this.#order;
    const { name, id } = ref;
    // The claim may be under way still: the quorum decided without waiting for it.
    const sentOnce = claimedOnce && record?.sentOnceTo(member.index) === true;
    const arrived = sentOnce && record.allArrivedAt(member.index);
    const tombstone = arrived ? "never" : sentOnce ? "if-missing" : "always";
    const turn = this.#turn?.member === member ? this.#turn : null;
    if (turn !== null && !this.#voters.includes(member)) return turn.release(engine, claimedOnce);
    const vote = engine.release({ name, id, tombstone });
    if (turn === null) return vote;
    return Promise.all([vote, turn.release(engine, claimedOnce)]).then(([answer]) => answer);
  }

  /** It leaves tombstones, so it can stand for a later one that must. */
  get leavesTombstones(): boolean {
    return !this.#order.claimedOnce;
  }

  /** Send it to whoever has not answered. */
  ask(): Poll<ReleaseAnswer, ReleaseAnswer> {
    return this.#members.ask<ReleaseAnswer, ReleaseAnswer>({
      members: this.concerned.filter((member) => this.unanswered(member)),
      ask: this.#sendTo,
      decide: (votes, open) => {
        const outcome = this.#outcome(open);
        if (outcome !== undefined) this.decided = true;
        // Until its turn is free, whoever asks without waiting is told busy.
        if (open > 0 && this.#keepsTurn(votes)) return undefined;
        if (outcome !== undefined || open > 0) return outcome;
        const why = "too few members answered the release";
        throw new QuorumNotReached(this.#order.needed, this.#members.count, votes, why);
      },
    });
  }

  /** The member that keeps the turn has not answered, and still may. */
  #keepsTurn(votes: readonly Vote<ReleaseAnswer>[]): boolean {
    const keeper = this.#turn?.member;
    return keeper !== undefined && this.unanswered(keeper) && votes.every(({ member }) => member !== keeper);
  }

  #outcome(open: number): ReleaseAnswer | undefined {
    const { needed } = this.#order;
    const members = this.#members.count;
    // It has only waited.
    if (this.#voters.length === 0 && this.#turn !== null) return this.#answers[this.#turn.member.index];
    let [known, released, revoked] = [members - this.#voters.length, 0, 0];
    for (const { index } of this.#voters) {
      const answer = this.#answers[index];
      if (answer !== undefined) known += 1;
      if (answer === "released") released += 1;
      if (answer === "revoked") revoked += 1;
    }
    if (released >= needed) return "released";
    const tooFew = members - needed;
    // So many that their release alone ended it; fewer may be a repair that was taken back.
    if (revoked > tooFew) return "revoked";
    if (known - released > tooFew) {
      // Those that are still asked may make it certain that somebody released it.
      const mayBeRevoked = revoked > 0 && open > 0 && revoked + open > tooFew;
      return mayBeRevoked ? undefined : "gone";
    }
    // Those that answered have nothing of it, so a quorum is free; the others may have held it.
    return open === 0 && known >= needed ? "released" : undefined;
  }
}

/**
 * Gives claims back, at every member where anything of them may be or arrive. Members that did not answer are sent the release
 * again in the background until they answer or the lease has ended. An id that is being released never comes back.
 */
export class Releases {
  readonly #members: Members;
  readonly #settings: Settings;
  readonly #records: ClaimRecords;
  readonly #turns: Turns;
  readonly #pending = new Map<string, { readonly release: PendingRelease; readonly done: Promise<unknown> }>();
  /** Ids whose round failed, and until when whoever claimed has claimed again. */
  readonly #abandoned = new Map<string, number>();
  readonly #retries: Retries;

  constructor(members: Members, settings: Settings, records: ClaimRecords, turns: Turns) {
    this.#members = members;
    this.#settings = settings;
    this.#records = records;
    this.#turns = turns;
    this.#retries = new Retries(settings);
  }

  release({ name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
    const ref = { name, id };
    const record = this.#records.remove(ref);
    const needed = this.#members.quorum(record?.claim.capacity ?? 1);
    if (record !== undefined) this.#turns.leave(record);
    const turn = record === undefined ? this.#turns.handedOver(ref) : record.turn;
    return this.start({ ref, needed, record, turn, claimedOnce: tombstone === "never" });
  }

  /** Whether an id is being released, or was in a round that failed. */
  has(ref: ClaimRef): boolean {
    const key = keyOf(ref);
    return this.#pending.has(key) || (this.#abandoned.get(key) ?? 0) > this.#settings.clock.now();
  }

  /**
   * The outcome of its round is unknown. Whoever claims again with the same id is to take another one, also when all members
   * that answered know of the release: the members that were away would be asked in vain, and the others answer no more than that.
   */
  abandon(order: ReleaseOrder): void {
    const { clock } = this.#settings;
    for (const [key, until] of this.#abandoned) {
      if (until > clock.now()) break;
      this.#abandoned.delete(key);
    }
    this.#abandoned.set(keyOf(order.ref), clock.now() + ASKED_AGAIN_MS);
    // Nobody waits for it: members that do not answer are sent the release again until the lease has ended.
    this.start(order).catch(() => {});
  }

  /**
   * `gone` or `revoked` when so many members had nothing of it that no quorum can have held it. Rejects when so few answered
   * that others may still be kept out by it.
   */
  start(order: ReleaseOrder): Promise<ReleaseAnswer> {
    const key = keyOf(order.ref);
    const before = this.#pending.get(key)?.release;
    // Released once more after an unknown outcome: answers that came meanwhile count.
    if (before !== undefined && before.leavesTombstones && !before.decided) return before.ask().decided;
    const release = new PendingRelease(this.#members, order);
    const { decided, all } = release.ask();
    const until = this.#settings.clock.now() + (order.record?.claim.leaseMs ?? AFTER_LEASE_MS) + AFTER_LEASE_MS;
    const done = all
      .then(() => this.#retry(release, until))
      .finally(() => {
        if (this.#pending.get(key)?.release === release) this.#pending.delete(key);
      });
    this.#pending.set(key, { release, done });
    return decided;
  }

  stop(): Promise<void> {
    return this.#retries.stop(Promise.all([...this.#pending.values()].map(({ done }) => done)));
  }

  #retry(release: PendingRelease, until: number): Promise<unknown> {
    const callTo = (member: Member) => ({
      send: () => release.send(member),
      unanswered: () => release.unanswered(member),
      until,
    });
    const unanswered = release.concerned.filter((member) => release.unanswered(member));
    return Promise.all(unanswered.map((member) => this.#retries.run(member, callTo(member))));
  }
}
