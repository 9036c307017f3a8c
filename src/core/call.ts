import type { Clock } from "./clock.js";
import { type Deadlines, Moment, type Timed } from "./deadlines.js";
import { ClosedError, EngineUnavailableError, isRefusal } from "./errors.js";
import type { Events } from "./events.js";

/** What a call needs of the client that makes it. */
export interface Caller {
  readonly engine: { readonly kind: string };
  readonly settings: { readonly callTimeoutMs: number };
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly events: Events;
  /** The client was closed, and no call is sent again. */
  readonly stopped: boolean;
  retryDelayMs(tries: number): number;
}

/** How much longer, in time limits, the pause after a try without an answer becomes at most. */
const LATE_PAUSE_MAX = 7;

/**
 * One call to the store, the only way there: it has a time limit, and is sent again while its outcome is unknown. It tells
 * by callback: nearly every call is answered at the first try, and a promise for each layer would be its main cost.
 *
 * A store that is slow is not sent copies without end: what was not answered in time may still be answered, and counts from
 * the time at which it was sent; from the second such try on the pauses grow.
 */
export abstract class Call<T> implements Timed {
  readonly #caller: Caller;
  readonly #moment = new Moment();
  /** When its answer is of no use any more. */
  readonly #until: number;
  /** When the try under way was sent. */
  sentAt = 0;
  tries = 0;
  #limitMs = 0;
  #state: "asked" | "pausing" | "done" = "pausing";
  #cause: unknown = null;

  constructor(caller: Caller, until: number) {
    this.#caller = caller;
    this.#until = until;
  }

  /** For messages: `releasing "invoice:42"`. */
  abstract get doing(): string;
  protected abstract send(): Promise<T>;
  protected abstract answered(answer: T): void;
  /** Refused for good, or unavailable for too long. */
  protected abstract failed(error: unknown): void;

  /** A try whose outcome is unknown. */
  protected unknown(_cause: unknown): void {}

  /** Not to be sent again, although its outcome is unknown. */
  protected get unwanted(): boolean {
    return false;
  }

  start(now: number): void {
    this.#state = "asked";
    this.tries += 1;
    this.sentAt = now;
    this.#limitMs = Math.min(this.#caller.settings.callTimeoutMs, this.#until - now);
    this.#caller.deadlines.set(this.#moment, this, now + this.#limitMs, now);
    const { tries } = this;
    this.#sent().then(
      (answer) => {
        if (this.#state === "done") return;
        this.#end();
        this.sentAt = now;
        this.answered(answer);
      },
      (cause: unknown) => {
        if (tries === this.tries && this.#state !== "done") this.#unanswered(cause, 0);
      },
    );
  }

  due(now: number): void {
    if (this.#state === "asked") {
      const lateMs = this.#limitMs * Math.min(2 ** (this.tries - 1) - 1, LATE_PAUSE_MAX);
      this.#unanswered(new Error(`no answer within ${Math.round(this.#limitMs)} ms`), lateMs);
    } else if (this.unwanted || now >= this.#until) this.#giveUp();
    else this.start(now);
  }

  stopped(): void {
    if (this.#state === "pausing") return this.#giveUp();
    this.#end();
    this.failed(new ClosedError(this.doing));
  }

  /** Nobody wants the answer any more. */
  abandon(): void {
    this.#end();
  }

  /** An engine that throws instead of rejecting is heard all the same, and no sooner than any other. */
  #sent(): Promise<T> {
    try {
      return Promise.resolve(this.send());
    } catch (cause) {
      return Promise.reject(cause);
    }
  }

  /** `lateMs`: how much longer to pause, because this try may still be answered. */
  #unanswered(cause: unknown, lateMs: number): void {
    this.#caller.deadlines.clear(this.#moment);
    if (isRefusal(cause)) {
      this.#end();
      return this.failed(cause);
    }
    // Told once for each try: one that was late may fail after that.
    if (this.#state === "asked") {
      this.#state = "pausing";
      this.#cause = cause;
      this.unknown(cause);
      const engine = this.#caller.engine.kind;
      this.#caller.events.emit("unavailable", () => ({ doing: this.doing, engine, cause }));
    }
    // Whoever was told may have left.
    if (this.#state === "done") return;
    const now = this.#caller.clock.now();
    const againAt = now + this.#caller.retryDelayMs(this.tries);
    if (againAt >= this.#until || this.unwanted || this.#caller.stopped) this.#giveUp();
    else this.#caller.deadlines.set(this.#moment, this, Math.min(againAt + lateMs, this.#until), now);
  }

  #giveUp(): void {
    this.#end();
    this.failed(new EngineUnavailableError(this.#caller.engine.kind, this.doing, this.#cause));
  }

  #end(): void {
    this.#state = "done";
    this.#caller.deadlines.clear(this.#moment);
  }
}

export type Answered<T> = { readonly answer: T; readonly sentAt: number; readonly tries: number };

/** How long to send a call again, and when to stop. */
export type RetryLimits = { readonly until: number; readonly unwanted?: () => boolean };

/** A call that is awaited. */
export class AwaitedCall<T> extends Call<T> {
  readonly doing: string;
  readonly #call: () => Promise<T>;
  readonly #unwanted: (() => boolean) | undefined;
  readonly #resolve: (answered: Answered<T>) => void;
  protected readonly failed: (error: unknown) => void;

  constructor(
    caller: Caller,
    doing: string,
    call: () => Promise<T>,
    { until, unwanted }: RetryLimits,
    resolve: (answered: Answered<T>) => void,
    reject: (error: unknown) => void,
  ) {
    super(caller, until);
    this.doing = doing;
    this.#call = call;
    this.#unwanted = unwanted;
    this.#resolve = resolve;
    this.failed = reject;
  }

  protected send(): Promise<T> {
    return this.#call();
  }

  protected override get unwanted(): boolean {
    return this.#unwanted?.() === true;
  }

  protected answered(answer: T): void {
    this.#resolve({ answer, sentAt: this.sentAt, tries: this.tries });
  }
}
