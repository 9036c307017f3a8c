import { checkFunction, checkKnown, checkNumber, shown } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { InvalidOptionError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import { TIMER_MAX_MS } from "../core/limits.js";
import { SharedValue } from "./cell.js";
import { Job, type JobOptions, type JobResult } from "./job.js";

export interface TicksOptions extends Pick<JobOptions, "atMostForMs" | "leaseMs" | "label"> {
  /** A tick that comes less than this after the last one that was begun is not run, by anybody. */
  readonly atLeastMs?: number;
}

/** One run: the tick it is for, and what protects it. */
export type Tick = {
  readonly at: Date;
  readonly token: number;
  readonly signal: AbortSignal;
  /** Aborted when `locks.drain()` asks to finish; the lock is still held. */
  readonly draining: AbortSignal;
};

/** What a scheduler that does not say more is precise to. */
const SECOND_MS = 1_000;

/**
 * The ticks of a scheduler that runs on every machine: each is run once in the whole fleet. The store remembers the last tick
 * that was begun, so that programs whose clocks differ agree; a lock keeps two ticks from running side by side. A tick whose
 * program dies is not begun again.
 */
export class Ticks {
  readonly name: string;
  readonly #client: Client;
  readonly #job: Job;
  readonly #last: SharedValue<number>;
  readonly #atLeastMs: number;

  /** @internal */
  constructor(client: Client, name: string, options: TicksOptions) {
    checkKnown(options, ["atLeastMs", "atMostForMs", "leaseMs", "label"]);
    const { atLeastMs = 0, ...rest } = options;
    this.name = name;
    this.#client = client;
    this.#job = new Job(client, name, rest);
    this.#last = new SharedValue(client, "schedule", name);
    this.#atLeastMs = checkNumber("atLeastMs", atLeastMs, 0, TIMER_MAX_MS, "milliseconds");
  }

  /**
   * Run the tick of `at` here, unless it, or a later one, was begun anywhere, or another tick still runs. Give the time that all
   * programs have for this tick, such as the one that its cron pattern says; without one it is the second that has begun.
   */
  run<T>(run: (tick: Tick) => T | PromiseLike<T>): Promise<JobResult<T>>;
  run<T>(at: Date | undefined, run: (tick: Tick) => T | PromiseLike<T>): Promise<JobResult<T>>;
  async run<T>(
    first: Date | undefined | ((tick: Tick) => T | PromiseLike<T>),
    second?: (tick: Tick) => T | PromiseLike<T>,
  ): Promise<JobResult<T>> {
    const [at, run] = typeof first === "function" ? [undefined, first] : [first, second];
    checkFunction("run", run);
    return this.runWithin(0, this.#timeOf(at), run as (tick: Tick) => T | PromiseLike<T>);
  }

  /** When the last tick that was begun was due; null when there was none. */
  async last(): Promise<Date | null> {
    const { value } = await this.#last.read();
    return value === null ? null : new Date(value);
  }

  /** The same, waiting for a run elsewhere to end; not begun any more once `unwanted`. @internal */
  async runWithin<T>(
    waitMs: number,
    at: number,
    run: (tick: Tick) => T | PromiseLike<T>,
    unwanted: () => boolean = () => false,
  ): Promise<JobResult<T>> {
    if (!this.#isNew((await this.#last.read()).value, at)) return { ran: false };
    let ran = false;
    const result = await this.#job.runWithin(waitMs, async (hold) => {
      // Asked before the tick is written down: after that it would be nobody's.
      if (unwanted() || !(await this.#begin(at, hold))) return undefined as T;
      ran = true;
      return run({ at: new Date(at), token: hold.token, signal: hold.signal, draining: hold.draining });
    });
    return result.ran && !ran ? { ran: false } : result;
  }

  async #begin(at: number, hold: Hold): Promise<boolean> {
    hold.throwIfLost();
    let mine = false;
    await this.#last.update((last) => {
      mine = this.#isNew(last, at);
      return mine ? at : undefined;
    });
    if (mine) hold.throwIfLost();
    return mine;
  }

  #isNew(last: number | null, at: number): boolean {
    return last === null || (at > last && at - last >= this.#atLeastMs);
  }

  #timeOf(at: Date | undefined): number {
    if (at === undefined) return Math.floor(this.#client.clock.wallMs() / SECOND_MS) * SECOND_MS;
    if (!(at instanceof Date) || Number.isNaN(at.getTime())) {
      throw new InvalidOptionError("at", shown(at), "the Date of a tick, or nothing");
    }
    return at.getTime();
  }
}
