import type { ClaimRef } from "../../core/engine.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "../../core/limits.js";
import { type Claimed, keyOf } from "./claimed.js";
import type { Member } from "./member.js";
import type { Settings } from "./options.js";
import { poll, QuorumNotReached, type Vote } from "./vote.js";

/** After the lease a claim ends by itself; a while longer for the clocks. */
const AFTER_LEASE_MS = 5_000;

type Word = "released" | "gone";
type Sleeper = { readonly cancel: () => void };

/**
 * Giving back, at every member where anything of the claim may be or arrive, also at those that failed: these are told in
 * the background until they have heard or the lease has ended. An id on its way out never comes back.
 */
export class Leaving {
  readonly #settings: Settings;
  readonly #underway = new Map<string, Promise<void>>();
  readonly #sleepers = new Set<Sleeper>();
  #stopped = false;

  constructor(settings: Settings) {
    this.#settings = settings;
  }

  has(ref: ClaimRef): boolean {
    return this.#underway.has(keyOf(ref));
  }

  /**
   * `gone` when so many members had nothing of it that no quorum can have held it. Rejects when so few answered that others
   * may still be kept out by it.
   */
  leave(ref: ClaimRef, members: readonly Member[], needed: number, claimed?: Claimed, settled = false): Promise<Word> {
    const { name, id } = ref;
    const concerned = members.filter(({ index }) => claimed === undefined || !claimed.absentFrom(index));
    const absent = members.length - concerned.length;
    const settledAt = (member: Member): boolean => settled && claimed?.settledAt(member.index) === true;
    const tell = (member: Member): Promise<Word> =>
      member.ask((engine) => engine.release({ name, id, settled: settledAt(member) }));
    const { decided, all } = poll<Word, Word>(this.#settings.clock, {
      members: concerned,
      limitMs: this.#settings.memberTimeoutMs,
      ask: (_engine, member) => tell(member),
      decide(votes, open) {
        const count = (word: Word): number => votes.filter((vote) => "answer" in vote && vote.answer === word).length;
        const [released, gone] = [count("released"), count("gone") + absent];
        if (released >= needed) return "released";
        if (gone > members.length - needed) return "gone";
        if (open > 0) return undefined;
        // Those that answered have nothing of it, so a quorum is free; the others may have held it.
        if (released + gone >= needed) return "released";
        throw new QuorumNotReached(needed, members.length, votes, "too few members heard the release");
      },
    });
    const leaseMs = claimed?.claim.leaseMs ?? AFTER_LEASE_MS;
    const until = this.#settings.clock.now() + leaseMs + AFTER_LEASE_MS;
    const underway = all
      .then((votes) => this.#insist(votes, tell, until))
      .finally(() => this.#underway.delete(keyOf(ref)));
    this.#underway.set(keyOf(ref), underway);
    return decided;
  }

  /** The last chance for members that have not heard yet. */
  async stop(): Promise<void> {
    for (const sleeper of [...this.#sleepers]) sleeper.cancel();
    await Promise.race([Promise.all(this.#underway.values()), this.#sleep(2 * this.#settings.memberTimeoutMs)]);
    this.#stopped = true;
    for (const sleeper of [...this.#sleepers]) sleeper.cancel();
  }

  async #insist(votes: readonly Vote<Word>[], tell: (member: Member) => Promise<Word>, until: number): Promise<void> {
    const deaf = votes.filter((vote) => "failure" in vote).map(({ member }) => member);
    await Promise.all(deaf.map((member) => this.#insistOn(() => tell(member), until)));
  }

  async #insistOn(tell: () => Promise<Word>, until: number): Promise<void> {
    const { clock, chance } = this.#settings;
    for (let tries = 1; !this.#stopped && clock.now() < until; tries += 1) {
      const mostMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(tries, 10));
      await this.#sleep(mostMs * (0.5 + chance.fraction() / 2));
      // The last one before the end is sent, too: whoever closes leaves as little behind as can be.
      if (this.#stopped) return;
      try {
        await tell();
        return;
      } catch {
        // Away still.
      }
    }
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const { clock } = this.#settings;
      const wake = (): void => {
        this.#sleepers.delete(sleeper);
        clock.cancel(timer);
        resolve();
      };
      const timer = clock.after(ms, wake);
      const sleeper: Sleeper = { cancel: wake };
      this.#sleepers.add(sleeper);
    });
  }
}
