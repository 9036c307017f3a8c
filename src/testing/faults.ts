import type { Clock, Timer } from "../core/clock.js";
import type { Engine } from "../core/engine.js";
import { type Hooks, intercept } from "./intercept.js";
import type { SeededChance } from "./seeded-chance.js";

/**
 * The clock of a process that can stand still, when its timers and whatever reaches it wait until it goes on, and that
 * runs at a speed of its own.
 */
export class PausableClock implements Clock {
  /** Its milliseconds in one of the true clock's. */
  readonly rate: number;
  readonly #base: Clock;
  #missed: (() => void)[] | null = null;

  constructor(base: Clock, rate = 1) {
    this.#base = base;
    this.rate = rate;
  }

  now(): number {
    return this.#base.now() * this.rate;
  }

  wallMs(): number {
    return this.#base.wallMs();
  }

  after(ms: number, run: () => void): Timer {
    const timer = {
      cancelled: false,
      timer: this.#base.after(ms / this.rate, () => this.reach(() => timer.cancelled || run())),
    };
    return timer;
  }

  cancel(timer: Timer): void {
    const own = timer as { cancelled: boolean; timer: Timer };
    own.cancelled = true;
    this.#base.cancel(own.timer);
  }

  /** Something reaches the process: now, or when it goes on. */
  reach(run: () => void): void {
    if (this.#missed === null) run();
    else this.#missed.push(run);
  }

  /** Time on the wire, which does not stand still when the process does. */
  wire(ms: number): Promise<void> {
    return ms === 0 ? Promise.resolve() : new Promise((resolve) => this.#base.after(ms, resolve));
  }

  pause(): void {
    this.#missed ??= [];
  }

  resume(): void {
    const missed = this.#missed ?? [];
    this.#missed = null;
    for (const run of missed) run();
  }
}

/** What goes wrong on a connection: how often each fault happens, from 0 to 1, and for how long messages travel. */
export type FaultProfile = {
  /** A request or an answer takes up to `delayMs`, sometimes ten times that. */
  readonly delayMs: number;
  /** A request does not arrive. */
  readonly lostRequest: number;
  /** It arrives and is carried out, but its answer does not come back. */
  readonly lostAnswer: number;
  /** A lost request or answer is not even reported as an error: the call hangs. */
  readonly hang: number;
  /** A copy of the request arrives later. */
  readonly duplicate: number;
  readonly lostPush: number;
  readonly duplicatePush: number;
};

/** Every message arrives at once, and once. */
export const NO_FAULTS: FaultProfile = {
  delayMs: 0,
  lostRequest: 0,
  lostAnswer: 0,
  hang: 0,
  duplicate: 0,
  lostPush: 0,
  duplicatePush: 0,
};

/** A little of every fault: for stress tests on a real store. */
export const SOME_FAULTS: FaultProfile = {
  delayMs: 50,
  lostRequest: 0.1,
  lostAnswer: 0.1,
  hang: 0.5,
  duplicate: 0.2,
  lostPush: 0.3,
  duplicatePush: 0.2,
};

/**
 * An engine behind an unreliable connection, by a seed. `resends`: the client library repeats what it sent, whatever it was
 * answered.
 */
export function faulty(
  engine: Engine,
  clock: PausableClock,
  chance: SeededChance,
  faults: () => FaultProfile,
  resends = false,
): Engine {
  const delay = (): number => {
    const { delayMs } = faults();
    if (delayMs === 0) return 0;
    return chance.fraction() * delayMs * (chance.chance(0.05) ? 10 : 1);
  };

  async function wire<T>(call: () => Promise<T>, copies: boolean): Promise<T> {
    const { lostRequest, lostAnswer, hang, duplicate } = faults();
    await clock.wire(delay());
    const lost = chance.chance(lostRequest);
    const answer = lost ? null : await call();
    const answerLost = !lost && chance.chance(lostAnswer);
    // Without a library that resends, a copy can only be a request that was sent again for want of an answer. Nobody waits for
    // the answer to a copy.
    if ((copies || lost || answerLost) && chance.chance(duplicate))
      void clock
        .wire(10 * delay())
        .then(call)
        .catch(() => {});
    await clock.wire(delay());
    await new Promise<void>((resolve) => clock.reach(resolve));
    if (answer !== null && !answerLost) return answer;
    if (chance.chance(hang)) return new Promise<T>(() => {});
    throw new Error(lost ? "the request was lost" : "the answer was lost");
  }

  const hooks: Hooks = {
    claim: (call) => wire(call, resends),
    release: (call) => wire(call, true),
    renew: (call) => wire(call, true),
    resize: (call) => wire(call, true),
    cellRead: (call) => wire(call, false),
    cellWrite: (call) => wire(call, true),
    push(deliver) {
      if (chance.chance(faults().lostPush)) return;
      void clock.wire(delay()).then(() => clock.reach(deliver));
      if (chance.chance(faults().duplicatePush)) void clock.wire(5 * delay()).then(() => clock.reach(deliver));
    },
  };
  const wired = intercept(engine, hooks);
  return { ...wired, resends };
}
