import type { Clock, Timer } from "../core/clock.js";

type FakeTimer = { readonly at: number; readonly order: number; readonly run: () => void };

/** A clock that moves only when told. Timers run in order of their time, and promises settle between them. */
export class FakeClock implements Clock {
  #now = 0;
  #wallMs: number;
  #order = 0;
  readonly #timers = new Set<FakeTimer>();

  constructor(wallMs = Date.UTC(2026, 0, 1)) {
    this.#wallMs = wallMs;
  }

  now(): number {
    return this.#now;
  }

  wallMs(): number {
    return this.#wallMs + this.#now;
  }

  after(ms: number, run: () => void): Timer {
    this.#order += 1;
    const timer: FakeTimer = { at: this.#now + Math.max(0, ms), order: this.#order, run };
    this.#timers.add(timer);
    return timer;
  }

  cancel(timer: Timer): void {
    this.#timers.delete(timer as FakeTimer);
  }

  /** How many timers are waiting, for leak tests. */
  get pending(): number {
    return this.#timers.size;
  }

  /** Time passes, timers run as they come due. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await settle();
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#now = Math.max(this.#now, next.at);
      this.#timers.delete(next);
      next.run();
      await settle();
    }
    this.#now = Math.max(this.#now, until);
    await settle();
  }

  /** Time passes and nothing runs, as when the event loop is stuck or the machine sleeps. */
  stall(ms: number): void {
    this.#now += ms;
  }

  /** Somebody sets the calendar. */
  stepWall(ms: number): void {
    this.#wallMs += ms;
  }

  #next(until: number): FakeTimer | undefined {
    let next: FakeTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > until) continue;
      if (next === undefined || timer.at < next.at || (timer.at === next.at && timer.order < next.order)) next = timer;
    }
    return next;
  }
}

/** Let every promise that can settle do so. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
