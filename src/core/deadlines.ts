import type { Clock, Timer } from "./clock.js";
import { TIMER_MAX_MS } from "./limits.js";

/** Who waits for a moment. */
export interface Timed {
  /** The moment has come. Nothing is waited for any more, until it is set again. */
  due(now: number): void;
  /** The client stopped before that moment. */
  stopped?(): void;
}

/** A moment that is waited for. An object of its own, all of one shape: as a base class of very different ones it was slow. */
export class Moment {
  readonly timed: Timed;
  at = Infinity;
  /** Of two with the same moment, the one that was set first comes first. */
  order = 0;
  /** Where it stands in the queue; -1: nobody waits for it. */
  index = -1;

  constructor(timed: Timed) {
    this.timed = timed;
  }
}

/**
 * Every moment that a client waits for, behind one timer: the limits of its calls, the heartbeats and deadlines of its
 * claims. A timer of its own for each would cost more than the rest of a call to a store in memory.
 */
export class Deadlines {
  readonly #clock: Clock;
  /** A binary heap: the next one is first. Not shrunk by pop, which would give its memory back and take it anew at each call. */
  readonly #heap: (Moment | undefined)[] = [];
  #size = 0;
  #order = 0;
  #timer: Timer | null = null;
  #timerAt = Infinity;
  /** Whether the timer keeps the process alive. */
  #awake = true;
  /** While moments are told: now. Who is set meanwhile is told in another turn, so that nobody is told without end. */
  #telling = -Infinity;

  readonly #run = (): void => this.look();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#size;
  }

  /** Waits until `at`, instead of what it waited for before. */
  set(moment: Moment, at: number, now: number): void {
    moment.at = at > this.#telling ? at : this.#telling + TICK_MS;
    moment.order = this.#order += 1;
    if (moment.index === -1) {
      moment.index = this.#size;
      this.#size += 1;
      this.#up(moment);
    } else {
      this.#up(moment);
      this.#down(moment);
    }
    this.#arm(now);
  }

  clear(moment: Moment): void {
    const { index } = moment;
    if (index === -1) return;
    moment.index = -1;
    this.#size -= 1;
    const last = this.#heap[this.#size];
    this.#heap[this.#size] = undefined;
    if (last !== undefined && last !== moment) {
      last.index = index;
      this.#heap[index] = last;
      this.#up(last);
      this.#down(last);
    }
    if (this.#size === 0) this.#rest();
  }

  /** Tells whoever is due. Called by the timer, and when time jumped ahead of it. */
  look(): void {
    const now = this.#clock.now();
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
    this.#timerAt = Infinity;
    this.#telling = now;
    try {
      for (let first = this.#heap[0]; first !== undefined && first.at <= now; first = this.#heap[0]) {
        this.clear(first);
        first.timed.due(now);
      }
    } finally {
      this.#telling = -Infinity;
      this.#arm(now);
    }
  }

  /** Nobody waits on a client that stopped. What is set later still has its time. */
  stop(): void {
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
    this.#timerAt = Infinity;
    for (const moment of this.#heap.filter((one) => one !== undefined)) {
      if (moment.index === -1) continue;
      this.clear(moment);
      moment.timed.stopped?.();
    }
  }

  #arm(now: number): void {
    const first = this.#heap[0];
    if (first === undefined || this.#telling > -Infinity) return;
    if (!this.#awake && this.#timer !== null) this.#clock.keepAlive?.(this.#timer, true);
    this.#awake = true;
    // An overdue timer may have missed a jump of the clock. It is set anew for now, and left alone from then on: put off by
    // each that comes it would never fire.
    const at = this.#timerAt <= now ? -Infinity : first.at;
    if (at >= this.#timerAt) return;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timerAt = at;
    this.#timer = this.#clock.after(Math.min(TIMER_MAX_MS, Math.max(0, at - now)), this.#run);
  }

  /** Nobody waits. The timer stays for the next one, which mostly comes soon, but is no reason for the process to live on. */
  #rest(): void {
    if (this.#timer === null || !this.#awake) return;
    if (this.#clock.keepAlive !== undefined) {
      this.#clock.keepAlive(this.#timer, false);
      this.#awake = false;
      return;
    }
    this.#clock.cancel(this.#timer);
    this.#timer = null;
    this.#timerAt = Infinity;
  }

  #up(moment: Moment): void {
    const heap = this.#heap;
    let { index } = moment;
    while (index > 0) {
      const above = (index - 1) >> 1;
      const parent = heap[above];
      if (parent === undefined || isBefore(parent, moment)) break;
      heap[index] = parent;
      parent.index = index;
      index = above;
    }
    heap[index] = moment;
    moment.index = index;
  }

  #down(moment: Moment): void {
    const heap = this.#heap;
    let { index } = moment;
    for (;;) {
      const left = heap[2 * index + 1];
      if (left === undefined) break;
      const right = heap[2 * index + 2];
      const child = right !== undefined && isBefore(right, left) ? right : left;
      if (isBefore(moment, child)) break;
      const below = child.index;
      heap[index] = child;
      child.index = index;
      index = below;
    }
    heap[index] = moment;
    moment.index = index;
  }
}

/** Who is set for a moment that is just being told comes a moment later. */
const TICK_MS = 0.001;

function isBefore(one: Moment, two: Moment): boolean {
  return one.at < two.at || (one.at === two.at && one.order < two.order);
}
