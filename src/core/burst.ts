import { Cancellation, type LastWord, NotAcquired } from "./cancellation.js";
import type { Client } from "./client.js";
import type { RenewAnswer } from "./engine.js";
import { MisuseError } from "./errors.js";
import { Grant } from "./grant.js";
import type { Ask, Terms } from "./options.js";
import { traceAcquire } from "./trace-acquire.js";
import { wantsAcquires } from "./tracing.js";
import { startAcquiring } from "./wait.js";

const DONE = Promise.resolve();
const RENEWED = { renew: true, maxHoldMs: undefined } as const;

/** How many holds, and for how many milliseconds, the tasks of one client may take turns under one claim. */
export type BurstOptions = { readonly holds: number; readonly ms: number };

/**
 * The tasks of one client that take turns under one claim of the store. While any of them waits, the claim for the next
 * burst stands in the store's queue: whoever came before it there comes first.
 */
export class Burst {
  readonly #client: Client;
  readonly #ask: Ask;
  /** What a task asks for. */
  readonly #asked: Ask;
  readonly #options: BurstOptions;
  readonly #terms: Terms;
  readonly #waiting = new Set<TurnWait>();
  /** The claim of the next burst is asked for. */
  #asking: AbortController | null = null;
  /** What the store said last about that claim. */
  #underWay: { readonly lastWord: LastWord } | null = null;
  #turn: Turn | null = null;
  #startedAt = 0;

  /** `terms`: of the claims, which no task's own options change. */
  constructor(client: Client, ask: Ask, options: BurstOptions, terms: Terms) {
    this.#client = client;
    this.#asked = ask;
    // Each task's own turn is traced.
    this.#ask = { ...ask, reserve: options.holds - 1, untraced: true };
    this.#options = options;
    this.#terms = terms;
  }

  get idle(): boolean {
    return this.#waiting.size === 0 && this.#asking === null && this.#turn?.ended !== null;
  }

  take(terms: Terms, done: (taken: Grant | NotAcquired) => void, failed: (error: unknown) => void): void {
    if (!wantsAcquires()) return this.#take(terms, done, failed);
    traceAcquire(this.#client, this.#asked, terms, done, failed, (taken, lost) => this.#take(terms, taken, lost));
  }

  #take(terms: Terms, done: (taken: Grant | NotAcquired) => void, failed: (error: unknown) => void): void {
    this.#client.assertTaking(`acquiring "${this.#ask.name}"`);
    terms.signal?.throwIfAborted();
    const now = this.#client.clock.now();
    if (terms.waitMs === 0) return this.#try(terms, done, failed);
    this.#client.limits.assertFew(this.#ask.name, this.#waiting.size);
    const wait = new TurnWait(this.#client, this.#ask.name, terms, now, done, failed, () => {
      const last = this.#lastWord();
      this.#remove(wait);
      return last;
    });
    this.#waiting.add(wait);
    this.#askForNext();
  }

  /** Who has the next turn under the same claim; null when that is to be given back. */
  next(turn: Turn, now: number): TurnWait | null {
    const [wait] = this.#waiting;
    const over = turn.number >= this.#options.holds || now - this.#startedAt >= this.#options.ms;
    // With little time left it is given back: whoever is next shall have enough of it.
    return wait === undefined || over || turn.state !== "held" ? null : wait;
  }

  #try(terms: Terms, done: (taken: Grant | NotAcquired) => void, failed: (error: unknown) => void): void {
    if (!this.idle) return done(new NotAcquired({ holder: this.#client.owner, why: undefined }, 0));
    const taken = (outcome: Grant | NotAcquired): void => {
      done(outcome instanceof Grant ? this.#firstTurn(outcome) : outcome);
    };
    startAcquiring(this.#client, this.#ask, { ...this.#terms, waitMs: 0, signal: terms.signal }, taken, failed);
  }

  #askForNext(): void {
    if (this.#asking !== null) return;
    const asking = new AbortController();
    this.#asking = asking;
    const ended = (): boolean => {
      if (this.#asking === asking) this.#asking = null;
      return asking.signal.aborted;
    };
    const granted = (taken: Grant | NotAcquired): void => {
      const unwanted = ended();
      if (taken instanceof Grant) this.#start(taken, unwanted);
    };
    const failed = (error: unknown): void => {
      if (ended()) return;
      for (const wait of [...this.#waiting]) {
        this.#remove(wait);
        wait.failed(error);
      }
    };
    try {
      const terms = { ...this.#terms, signal: asking.signal };
      this.#underWay = startAcquiring(this.#client, this.#ask, terms, granted, failed);
    } catch (error) {
      // The client drains since the last burst was granted: nobody else would tell those who wait.
      failed(error);
    }
  }

  /** While one of ours has the turn that is why the others wait; otherwise the store's word counts, or that it has none. */
  #lastWord(): LastWord {
    const ours = { holder: this.#client.owner, failure: null };
    return this.#turn?.ended === null ? ours : (this.#underWay?.lastWord ?? ours);
  }

  #start(grant: Grant, unwanted: boolean): void {
    const [wait] = this.#waiting;
    if (unwanted || wait === undefined) {
      grant.addHold();
      // Nobody works under it: that it could not be given back, or was lost, is told as an event like any other.
      grant.removeHold().catch(() => {});
      return;
    }
    this.give(wait, this.#firstTurn(grant), this.#client.clock.now());
    if (this.#waiting.size > 0) this.#askForNext();
  }

  #firstTurn(grant: Grant): Turn {
    this.#startedAt = this.#client.clock.now();
    this.#turn = new Turn(this, grant, 1, this.#startedAt);
    return this.#turn;
  }

  give(wait: TurnWait, turn: Turn, now: number): void {
    this.#turn = turn;
    this.#remove(wait);
    wait.granted(turn, now);
  }

  #remove(wait: TurnWait): void {
    this.#waiting.delete(wait);
    // Nobody is left to take the next burst: its claim is withdrawn.
    if (this.#waiting.size === 0 && this.#asking !== null) {
      const asking = this.#asking;
      this.#asking = null;
      asking.abort();
    }
  }
}

/** One task's time under the claim that a burst shares. Each has the next of the tokens that the claim keeps for itself. */
class Turn extends Grant {
  /** From 1. */
  readonly number: number;
  readonly #burst: Burst;

  constructor(burst: Burst, before: Grant, number: number, now: number) {
    const token = before.fence.token + (number === 1 ? 0 : 1);
    super(before.client, before.claim, RENEWED, { token, floor: token }, before.passOn(), now);
    this.#burst = burst;
    this.number = number;
  }

  protected override release(now: number): Promise<void> {
    const next = this.#burst.next(this, now);
    if (next === null) return super.release(now);
    const { client, claim, token, grantedAt } = this;
    const { name, id } = claim;
    const turn = new Turn(this.#burst, this, this.number + 1, now);
    client.events.emit("released", () => ({ name, id, token, heldMs: now - grantedAt }));
    this.trace?.ended("released", now - grantedAt);
    this.#burst.give(next, turn, now);
    return DONE;
  }

  /** The store knows the claim's own token. */
  override answered(answer: RenewAnswer, sentAt: number): void {
    if (answer.kind !== "granted" && answer.kind !== "queued") return super.answered(answer, sentAt);
    const token = answer.token + this.number - 1;
    super.answered({ ...answer, token, ...(answer.kind === "granted" ? { floor: token } : {}) }, sentAt);
  }

  override handOver(): never {
    throw new MisuseError(
      `"${this.claim.name}" is held in a burst, whose claim other tasks go on with: it cannot be handed over.`,
    );
  }
}

/** A task that waits for its turn. */
class TurnWait extends Cancellation {
  readonly #startedAt: number;
  readonly #name: string;
  readonly #client: Client;
  readonly #done: (taken: Grant | NotAcquired) => void;
  readonly #failed: (error: unknown) => void;

  constructor(
    client: Client,
    name: string,
    terms: Terms,
    now: number,
    done: (taken: Grant | NotAcquired) => void,
    failed: (error: unknown) => void,
    left: () => LastWord,
  ) {
    super(client, terms, now);
    this.#startedAt = now;
    this.#name = name;
    this.#client = client;
    this.#done = done;
    this.#failed = failed;
    this.target = {
      cancelled: () => this.#cancelled(left()),
    };
  }

  granted(turn: Turn, now: number): void {
    this.dispose();
    const { name, id } = turn.claim;
    const { token } = turn;
    // The first turn's grant was told when the store granted the claim.
    if (turn.number > 1) {
      this.#client.events.emit("granted", () => ({ name, id, token, waitedMs: now - this.#startedAt }));
    }
    this.#done(turn);
  }

  failed(error: unknown): void {
    this.dispose();
    this.#failed(error);
  }

  #cancelled(last: LastWord): void {
    this.dispose();
    try {
      this.#done(this.outcome(this.#name, last, this.#client.clock.now() - this.#startedAt));
    } catch (error) {
      this.#failed(error);
    }
  }
}
