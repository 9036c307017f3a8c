import type { Clock, Timer } from "../core/clock.js";

type FakeTimer = { readonly at: number; readonly order: number; readonly run: () => void; done: boolean };

/** A clock that moves only when told. Timers run in order of their time, and promises settle between them. */
export class FakeClock implements Clock {
  #now = 0;
  #wallMs: number;
  #order = 0;
  /** A heap: the next one is first. Those that were cancelled stay until they come up. */
  readonly #timers: FakeTimer[] = [];
  #pending = 0;

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
    const timer: FakeTimer = { at: this.#now + Math.max(0, ms), order: this.#order, run, done: false };
    this.#push(timer);
    this.#pending += 1;
    return timer;
  }

  cancel(timer: Timer): void {
    this.#end(timer as FakeTimer);
  }

  /** How many timers are waiting, for leak tests. */
  get pending(): number {
    return this.#pending;
  }

  /** Time passes, timers run as they come due. */
  async advance(ms: number): Promise<void> {
    const until = this.#now + ms;
    await settleQuickly();
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#now = Math.max(this.#now, next.at);
      this.#end(next);
      next.run();
      await settleQuickly();
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

  #end(timer: FakeTimer): void {
    if (timer.done) return;
    timer.done = true;
    this.#pending -= 1;
  }

  /** Takes the next timer out, if it is due. */
  #next(until: number): FakeTimer | undefined {
    for (let first = this.#timers[0]; first !== undefined && first.at <= until; first = this.#timers[0]) {
      this.#pop();
      if (!first.done) return first;
    }
    return undefined;
  }

  #push(timer: FakeTimer): void {
    const timers = this.#timers;
    let at = timers.push(timer) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      const parent = timers[above];
      if (parent === undefined || isBefore(parent, timer)) break;
      timers[at] = parent;
      at = above;
    }
    timers[at] = timer;
  }

  #pop(): void {
    const timers = this.#timers;
    const last = timers.pop();
    if (last === undefined || timers.length === 0) return;
    let at = 0;
    for (;;) {
      const left = timers[2 * at + 1];
      const right = timers[2 * at + 2];
      if (left === undefined) break;
      const goesRight = right !== undefined && isBefore(right, left);
      const child = goesRight ? right : left;
      if (isBefore(last, child)) break;
      timers[at] = child;
      at = 2 * at + (goesRight ? 2 : 1);
    }
    timers[at] = last;
  }
}

function isBefore(one: FakeTimer, two: FakeTimer): boolean {
  return one.at < two.at || (one.at === two.at && one.order < two.order);
}

/** Let every promise that can settle do so. */
export function settle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/**
 * The same without a turn of the event loop, which costs more than most timers do. Ticks come when no promise is left to
 * settle; three of them, for what itself waits for a tick (`core/turn.ts`).
 */
async function settleQuickly(): Promise<void> {
  for (let ticks = 0; ticks < 3; ticks += 1) await new Promise<void>((resolve) => process.nextTick(resolve));
}
