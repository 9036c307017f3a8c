import { randomBytes } from "node:crypto";

/** Time, passed in. Durations come from `now`; `wallMs` is only for numbers that must compare between processes. */
export interface Clock {
  /** Milliseconds that never go back; not related to any calendar. */
  now(): number;
  wallMs(): number;
  after(ms: number, run: () => void): Timer;
  cancel(timer: Timer): void;
  /** Whether this timer is a reason for the process to live on, as it is at first; only for clocks whose timers are. */
  keepAlive?(timer: Timer, alive: boolean): void;
  /** Tells when time jumped ahead of the timers, as after a suspended machine; only for clocks whose timers can be late. */
  onJump?(run: () => void): () => void;
}

/** Only the clock that made it knows what it is. */
export type Timer = object;

/** Chance, passed in. */
export interface Chance {
  /** 128 random bits, printable. */
  id(): string;
  /** From 0 to below 1. */
  fraction(): number;
}

/** The clocks may disagree this much without one of them having jumped: they have different resolutions. */
const DISAGREEMENT_MS = 20;

/** Time that stands still while the machine is suspended, and knows nothing of the calendar. */
export class MonotonicClock implements Clock {
  now(): number {
    return performance.now();
  }

  wallMs(): number {
    return Date.now();
  }

  after(ms: number, run: () => void): Timer {
    return setTimeout(run, Math.ceil(ms));
  }

  cancel(timer: Timer): void {
    clearTimeout(timer as NodeJS.Timeout);
  }

  keepAlive(timer: Timer, alive: boolean): void {
    if (alive) (timer as NodeJS.Timeout).ref();
    else (timer as NodeJS.Timeout).unref();
  }
}

/** Milliseconds that never go back, the same for all threads of a process. */
export function machineMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** How often to look for a jump; the timers themselves do not see one. */
const LOOK_EVERY_MS = 1000;

/**
 * Elapsed time is the larger of what the monotonic and the wall clock say: the first stands still while a machine is
 * suspended, the second while somebody sets it back (`pitfalls.md` 12).
 */
export class SystemClock extends MonotonicClock {
  readonly #monotonicMs: () => number;
  readonly #wallMs: () => number;
  #offset: number;
  #jumped = 0;

  constructor(monotonicMs: () => number = () => performance.now(), wallMs: () => number = () => Date.now()) {
    super();
    this.#monotonicMs = monotonicMs;
    this.#wallMs = wallMs;
    this.#offset = wallMs() - monotonicMs();
  }

  override now(): number {
    const monotonic = this.#monotonicMs();
    const offset = this.#wallMs() - monotonic;
    const jump = offset - this.#offset;
    if (Math.abs(jump) > DISAGREEMENT_MS) {
      this.#offset = offset;
      // Forward: perhaps a suspended machine, so it counts as elapsed. Back: somebody set the clock, so it does not.
      this.#jumped += Math.max(0, jump);
    }
    return monotonic + this.#jumped;
  }

  override wallMs(): number {
    return this.#wallMs();
  }

  onJump(run: () => void): () => void {
    let seen = this.#jumped;
    const look = setInterval(() => {
      this.now();
      if (this.#jumped > seen) run();
      seen = this.#jumped;
    }, LOOK_EVERY_MS);
    look.unref();
    return () => clearInterval(look);
  }
}

const ID_BYTES = 16;

/** Draws random bytes in blocks: one call into the kernel for many ids. */
export class SystemChance implements Chance {
  #block = Buffer.alloc(0);
  #at = 0;

  id(): string {
    if (this.#at >= this.#block.length) {
      this.#block = randomBytes(ID_BYTES * 256);
      this.#at = 0;
    }
    const id = this.#block.toString("base64url", this.#at, this.#at + ID_BYTES);
    this.#at += ID_BYTES;
    return id;
  }

  fraction(): number {
    return Math.random();
  }
}
