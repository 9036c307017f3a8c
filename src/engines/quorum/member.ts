// Beyond the fixed set of files: a quorum talks to engines, not to a driver.
import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { Engine, EngineEvent } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import type { Unlisten } from "../../core/unlisten.js";
import { reasonOf } from "./errors.js";
import type { NamedMember } from "./options.js";

/** Calls left unanswered beyond their limit before a member is asked no more, until one of them ends or is given up. */
const OVERDUE_MAX = 16;
const OVERDUE_MS = 5_000;
/** Failures in a row before there is a warning. */
const FAILURES_BEFORE_WARNING = 3;
const REOPEN_MAX_MS = 5_000;

export type MemberOptions = {
  readonly clock: Clock;
  readonly chance: Chance;
  /** Called when it opened, or came back after a reconnect: checks who it is. What it throws keeps the member out. */
  readonly admit: (member: Member, engine: Engine) => Promise<void>;
  readonly emit: (event: EngineEvent) => void;
  /** Whether an event was about somebody's turn, and is dealt with. */
  readonly aboutTurn: (event: EngineEvent) => boolean;
  /** Called when it stays away. Not with each failure: one that answers this and refuses that would never let anybody rest. */
  readonly wentAway: (member: Member) => void;
};

/** One store of the quorum: asked like an engine, and may be away. */
export class Member {
  readonly index: number;
  readonly name: string;
  /** The same for all clients, where the store says who it is. */
  identity: string;
  readonly #source: NamedMember["source"];
  readonly #options: MemberOptions;
  /** When the limit of each call passed that it has not answered since. */
  readonly #overdue: number[] = [];
  #engine: Engine | null = null;
  #unlisten: Unlisten = () => {};
  /** Why it has no vote; null when it has. */
  #excludedBy: unknown = new Error("not open yet");
  /** The last warning about that. */
  #lastWarning = "";
  #failures = 0;
  #hasQueue = false;
  #timer: Timer | null = null;
  #closed = false;

  constructor(index: number, { name, source }: NamedMember, options: MemberOptions) {
    this.index = index;
    this.name = name;
    this.identity = name;
    this.#source = source;
    this.#options = options;
  }

  /** Null while it is away. */
  get engine(): Engine | null {
    return this.#engine;
  }

  /** It has a queue, and answered the last question. */
  get keepsOrder(): boolean {
    return this.#hasQueue && this.#failures === 0 && this.#excludedBy === null;
  }

  /** Opens it, once. Rejects when it is away or must not take part; `reopen` goes on trying. */
  async open(): Promise<void> {
    const source = this.#source;
    const engine = typeof source === "function" ? await source() : source;
    try {
      await this.#options.admit(this, engine);
      if (this.#closed) throw new Error("closed meanwhile");
    } catch (error) {
      this.#excludedBy = error;
      if (engine !== source) await engine[Symbol.asyncDispose]();
      throw error;
    }
    this.#engine = engine;
    this.#hasQueue = engine.guarantees.order !== "none";
    this.#admitted();
    this.#unlisten = engine.listen((event) => this.#onEvent(event, engine));
  }

  /** In the background, for as long as it takes: a quorum starts without those who are away. */
  reopen(cause: unknown, tries = 1): void {
    this.#excludedBy = cause;
    if (this.#closed) return;
    const delayMs = backoffMs(tries, this.#options.chance, { maxMs: REOPEN_MAX_MS });
    this.#timer = this.#options.clock.after(delayMs, () => {
      this.open().then(
        () => this.#options.emit({ kind: "warning", message: `quorum member ${this.name} is here now` }),
        (error: unknown) => {
          // Somebody may mend a password meanwhile; until then nobody would know why it stays away.
          if (isRefusal(error)) this.#exclude(error);
          this.reopen(error, tries + 1);
        },
      );
    });
  }

  /** Without a promise of its own: every lock pays for each of them, at each member. */
  ask<T>(call: (engine: Engine, member: Member) => Promise<T>): Promise<T> {
    if (this.#engine === null || this.#excludedBy !== null) return Promise.reject(this.#excludedBy);
    if (this.#overdue.length > 0) {
      const givenUp = this.#options.clock.now() - OVERDUE_MS;
      while ((this.#overdue[0] ?? Infinity) < givenUp) this.#overdue.shift();
      if (this.#overdue.length >= OVERDUE_MAX) return Promise.reject(new Error(`${OVERDUE_MAX} calls unanswered`));
    }
    try {
      return call(this.#engine, this);
    } catch (error) {
      // An engine that throws instead of rejecting breaks the contract.
      return Promise.reject(error);
    }
  }

  /** The limit of a call has passed. */
  noteOverdue(): void {
    this.#overdue.push(this.#options.clock.now());
  }

  /** A call was answered after its limit, or failed. */
  noteLateAnswer(): void {
    this.#overdue.shift();
  }

  /** The outcome of a question: null when it answered. Warns when the member stays away, and when it is back. */
  noteOutcome(failure: unknown): void {
    const before = this.#failures;
    this.#failures = failure === null ? 0 : before + 1;
    if (this.#failures === FAILURES_BEFORE_WARNING) {
      this.#options.emit({ kind: "warning", message: `quorum member ${this.name} is away: ${reasonOf(failure)}` });
      this.#options.wentAway(this);
    }
    if (failure === null && before >= FAILURES_BEFORE_WARNING) {
      this.#options.emit({ kind: "warning", message: `quorum member ${this.name} answers again` });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#unlisten();
    if (this.#timer !== null) this.#options.clock.cancel(this.#timer);
    if (this.#engine !== null && this.#engine !== this.#source) await this.#engine[Symbol.asyncDispose]();
  }

  #onEvent(event: EngineEvent, engine: Engine): void {
    if (event.kind === "warning") {
      return this.#options.emit({ kind: "warning", message: `${this.name}: ${event.message}` });
    }
    if (this.#options.aboutTurn(event)) return undefined;
    // One member's answer is not the quorum's: whoever it concerns asks all of them.
    const { name, id } = event;
    this.#options.emit({ kind: "wake", ...(name === undefined ? {} : { name }), ...(id === undefined ? {} : { id }) });
    // Behind the same address there may be another server now.
    return event.kind === "wake" && name === undefined ? void this.#admitAgain(engine) : undefined;
  }

  async #admitAgain(engine: Engine): Promise<void> {
    try {
      await this.#options.admit(this, engine);
      this.#admitted();
    } catch (error) {
      // Away again is what votes are for; a wrong server must not vote at all.
      if (isRefusal(error)) this.#exclude(error);
    }
  }

  #admitted(): void {
    this.#excludedBy = null;
    this.#lastWarning = "";
  }

  /** Warns once for each reason. */
  #exclude(error: Error): void {
    const message = `quorum member ${this.name} has no vote: ${error.message}`;
    if (message !== this.#lastWarning) this.#options.emit({ kind: "warning", message });
    this.#lastWarning = message;
    this.#excludedBy = error;
  }
}
