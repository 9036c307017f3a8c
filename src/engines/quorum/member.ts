import { backoffMs } from "../../core/backoff.js";
import type { Chance, Clock, Timer } from "../../core/clock.js";
import type { Engine, EngineEvent } from "../../core/engine.js";
import { EngineUnavailableError, isRefusal } from "../../core/errors.js";
import type { Unlisten } from "../../core/unlisten.js";
import type { NamedMember } from "./options.js";
import { reasonOf } from "./vote.js";

/** Calls left unanswered beyond their limit before a member is asked no more, until one of them ends or is given up. */
const OVERDUE_MAX = 16;
const OVERDUE_MS = 5_000;
/** Failures in a row before somebody is told. */
const FAILURES_TOLD = 3;
const REOPEN_MAX_MS = 5_000;

export type MemberParts = {
  readonly clock: Clock;
  readonly chance: Chance;
  /** It opened, or came back after a reconnect: find out who it is. What it throws keeps the member out. */
  readonly admit: (member: Member, engine: Engine) => Promise<void>;
  readonly tell: (event: EngineEvent) => void;
};

/** One store of the quorum: asked like an engine, and may be away. */
export class Member {
  readonly index: number;
  readonly name: string;
  readonly #source: NamedMember["source"];
  readonly #parts: MemberParts;
  /** When the limit of each call passed that it has not answered since. */
  readonly #overdue: number[] = [];
  #engine: Engine | null = null;
  #unlisten: Unlisten = () => {};
  /** Why it has no say; null when it has. */
  #barred: unknown = new Error("not open yet");
  /** What was last said of that. */
  #told = "";
  #failures = 0;
  #timer: Timer | null = null;
  #closed = false;

  constructor(index: number, { name, source }: NamedMember, parts: MemberParts) {
    this.index = index;
    this.name = name;
    this.#source = source;
    this.#parts = parts;
  }

  /** Null while it is away. */
  get engine(): Engine | null {
    return this.#engine;
  }

  /** Opens it, once. Rejects when it is away or must not take part; `reopen` goes on trying. */
  async open(): Promise<void> {
    const source = this.#source;
    const engine = typeof source === "function" ? await source() : source;
    try {
      await this.#parts.admit(this, engine);
      if (this.#closed) throw new Error("closed meanwhile");
    } catch (error) {
      this.#barred = error;
      if (engine !== source) await engine[Symbol.asyncDispose]();
      throw error;
    }
    this.#engine = engine;
    this.#admitted();
    this.#unlisten = engine.listen((event) => this.#pushed(event, engine));
  }

  /** In the background, for as long as it takes: a quorum starts without those who are away. */
  reopen(cause: unknown, tries = 1): void {
    this.#barred = cause;
    if (this.#closed) return;
    const delayMs = backoffMs(tries, this.#parts.chance, { maxMs: REOPEN_MAX_MS });
    this.#timer = this.#parts.clock.after(delayMs, () => {
      this.open().then(
        () => this.#parts.tell({ kind: "warning", message: `quorum member ${this.name} is here now` }),
        (error: unknown) => {
          // Somebody may mend a password meanwhile; until then nobody would know why it stays away.
          if (isRefusal(error)) this.#bar(error);
          this.reopen(error, tries + 1);
        },
      );
    });
  }

  /** Without a promise of its own: every lock pays for each of them, at each member. */
  ask<T>(call: (engine: Engine, member: Member) => Promise<T>): Promise<T> {
    if (this.#engine === null || this.#barred !== null) return Promise.reject(this.#barred);
    if (this.#overdue.length > 0) {
      const givenUp = this.#parts.clock.now() - OVERDUE_MS;
      while ((this.#overdue[0] ?? Infinity) < givenUp) this.#overdue.shift();
      if (this.#overdue.length >= OVERDUE_MAX) return Promise.reject(new Error(`${OVERDUE_MAX} calls unanswered`));
    }
    try {
      return call(this.#engine, this);
    } catch (error) {
      // An engine that does not keep to its promise.
      return Promise.reject(error);
    }
  }

  /** The limit of a call has passed. */
  late(): void {
    this.#overdue.push(this.#parts.clock.now());
  }

  /** A call was answered after its limit, or failed. */
  lateAnswer(): void {
    this.#overdue.shift();
  }

  /** How it did in a poll: null when it answered. Told when it stays away, and when it is back. */
  heard(failure: unknown): void {
    const before = this.#failures;
    this.#failures = failure === null ? 0 : before + 1;
    if (this.#failures === FAILURES_TOLD) {
      this.#parts.tell({ kind: "warning", message: `quorum member ${this.name} is away: ${reasonOf(failure)}` });
    }
    if (failure === null && before >= FAILURES_TOLD) {
      this.#parts.tell({ kind: "warning", message: `quorum member ${this.name} answers again` });
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#unlisten();
    if (this.#timer !== null) this.#parts.clock.cancel(this.#timer);
    if (this.#engine !== null && this.#engine !== this.#source) await this.#engine[Symbol.asyncDispose]();
  }

  #pushed(event: EngineEvent, engine: Engine): void {
    if (event.kind === "warning") {
      return this.#parts.tell({ kind: "warning", message: `${this.name}: ${event.message}` });
    }
    // One member's word is not the quorum's: whoever it concerns asks all of them.
    const { name, id } = event;
    this.#parts.tell({ kind: "wake", ...(name === undefined ? {} : { name }), ...(id === undefined ? {} : { id }) });
    // Behind the same address there may be another server now.
    if (event.kind === "wake" && name === undefined) void this.#admitAgain(engine);
  }

  async #admitAgain(engine: Engine): Promise<void> {
    try {
      await this.#parts.admit(this, engine);
      this.#admitted();
    } catch (error) {
      // Away again is what votes are for; a wrong server must not vote at all.
      if (error instanceof EngineUnavailableError || !(error instanceof Error) || !("code" in error)) return;
      this.#bar(error);
    }
  }

  #admitted(): void {
    this.#barred = null;
    this.#told = "";
  }

  /** Told once for each reason. */
  #bar(error: Error): void {
    const message = `quorum member ${this.name} has no vote: ${error.message}`;
    if (message !== this.#told) this.#parts.tell({ kind: "warning", message });
    this.#told = message;
    this.#barred = error;
  }
}
