import type { ClaimRef, ReleaseAnswer } from "../../core/engine.js";
import { type Claimed, keyOf } from "./claim-record.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";
import { Insistence } from "./retry.js";
import { type Poll, poll, QuorumNotReached } from "./vote.js";

/** After the lease a claim ends by itself; a while longer for the clocks. */
const AFTER_LEASE_MS = 5_000;

/** The core asks again after a second at most; a process that stood still for longer finds the marks. */
const ASKED_AGAIN_MS = 10_000;

/** What leaves: `settled` when it was claimed exactly once and that call was answered. */
export type Going = {
  readonly ref: ClaimRef;
  readonly members: readonly Member[];
  readonly needed: number;
  readonly claimed: Claimed | undefined;
  readonly settled: boolean;
};

/** One claim's way out: who has to hear of it, and what they said. */
class Farewell {
  /** So many have heard that the outcome is known. */
  decided = false;
  readonly concerned: readonly Member[];
  readonly #going: Going;
  /** Also of those that answered after their limit. */
  readonly #words = new Map<Member, ReleaseAnswer>();

  constructor(going: Going) {
    const { members, claimed } = going;
    this.#going = going;
    this.concerned = members.filter(({ index }) => claimed === undefined || !claimed.absentFrom(index));
  }

  unheard(member: Member): boolean {
    return !this.#words.has(member);
  }

  tell(member: Member): Promise<ReleaseAnswer> {
    const { ref, claimed, settled } = this.#going;
    const { name, id } = ref;
    // The claim may be under way still: the quorum decided without waiting for it.
    const sentOnce = settled && claimed?.sentOnceTo(member.index) === true;
    const settledThere = sentOnce && claimed.settledAt(member.index);
    return member
      .ask((engine) =>
        engine.release({ name, id, tombstone: settledThere ? "never" : sentOnce ? "if-missing" : "always" }),
      )
      .then((word) => {
        this.#words.set(member, word);
        return word;
      });
  }

  /** It leaves marks, so it can stand for a later one that must. */
  get marks(): boolean {
    return !this.#going.settled;
  }

  /** Tell whoever has not heard. */
  ask({ clock, memberTimeoutMs }: Settings): Poll<ReleaseAnswer, ReleaseAnswer> {
    const { members, needed } = this.#going;
    return poll<ReleaseAnswer, ReleaseAnswer>(clock, {
      members: this.concerned.filter((member) => this.unheard(member)),
      limitMs: memberTimeoutMs,
      ask: (_engine, member) => this.tell(member),
      decide: (votes, open) => {
        const word = this.#outcome(open);
        if (word !== undefined) this.decided = true;
        if (word !== undefined || open > 0) return word;
        throw new QuorumNotReached(needed, members.length, votes, "too few members heard the release");
      },
    });
  }

  #outcome(open: number): ReleaseAnswer | undefined {
    const { members, needed } = this.#going;
    const said = { released: 0, gone: 0, revoked: 0 };
    for (const word of this.#words.values()) said[word] += 1;
    const heard = members.length - this.concerned.length + this.#words.size;
    if (said.released >= needed) return "released";
    const tooFew = members.length - needed;
    // So many that their word alone ended it; fewer may be a repair that was taken back.
    if (said.revoked > tooFew) return "revoked";
    if (heard - said.released > tooFew) return "gone";
    // Those that answered have nothing of it, so a quorum is free; the others may have held it.
    return open === 0 && heard >= needed ? "released" : undefined;
  }
}

/**
 * Giving back, at every member where anything of the claim may be or arrive, also at those that failed: these are told in
 * the background until they have heard or the lease has ended. An id on its way out never comes back.
 */
export class Leaving {
  readonly #settings: Settings;
  readonly #underway = new Map<string, { readonly farewell: Farewell; readonly told: Promise<unknown> }>();
  /** By when whoever asked has asked again. */
  readonly #failed = new Map<string, number>();
  readonly #insistence: Insistence;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#insistence = new Insistence(settings);
  }

  /** Whether an id is on its way out, or was in a round that failed. */
  has(ref: ClaimRef): boolean {
    const key = keyOf(ref);
    return this.#underway.has(key) || (this.#failed.get(key) ?? 0) > this.#settings.clock.now();
  }

  /**
   * Nobody knows what became of its round. Whoever asks again with the same id is to take another one, also when all that
   * heard of it know that it left: the members that were away would be asked in vain, and the others say no more than that.
   */
  fail(going: Going): void {
    const { clock } = this.#settings;
    for (const [key, until] of this.#failed) {
      if (until > clock.now()) break;
      this.#failed.delete(key);
    }
    this.#failed.set(keyOf(going.ref), clock.now() + ASKED_AGAIN_MS);
    this.leave(going).catch(() => {});
  }

  /**
   * `gone` or `revoked` when so many members had nothing of it that no quorum can have held it. Rejects when so few answered that others
   * may still be kept out by it.
   */
  leave(going: Going): Promise<ReleaseAnswer> {
    const key = keyOf(going.ref);
    const before = this.#underway.get(key);
    // Asked once more by somebody who was told that nobody knows: what was heard meanwhile counts.
    if (before !== undefined && before.farewell.marks && !before.farewell.decided)
      return before.farewell.ask(this.#settings).decided;
    const farewell = new Farewell(going);
    const { decided, all } = farewell.ask(this.#settings);
    const until = this.#settings.clock.now() + (going.claimed?.claim.leaseMs ?? AFTER_LEASE_MS) + AFTER_LEASE_MS;
    const told = all
      .then(() => this.#insist(farewell, until))
      .finally(() => {
        if (this.#underway.get(key)?.farewell === farewell) this.#underway.delete(key);
      });
    this.#underway.set(key, { farewell, told });
    return decided;
  }

  stop(): Promise<void> {
    return this.#insistence.stop(Promise.all([...this.#underway.values()].map(({ told }) => told)));
  }

  #insist(farewell: Farewell, until: number): Promise<unknown> {
    const errand = (member: Member) => ({
      tell: () => farewell.tell(member),
      unheard: () => farewell.unheard(member),
      until,
    });
    return Promise.all(farewell.concerned.map((member) => this.#insistence.run(member, errand(member))));
  }
}
