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
  /** Only while it is waited for: one that was cleared stays in the queue for a while, and keeps nothing else alive. */
  timed: Timed | null = null;
  at = Infinity;
  /** Of two with the same moment, the one that was set first comes first. */
  order = 0;
  /** Where it stands in the queue; -1: it does not. */
  index = -1;
}

/**
 * Every moment that a client waits for, behind one timer: the limits of its calls, the heartbeats and deadlines of its
 * claims. A timer of its own for each would cost more than the rest of a call to a store in memory.
 */
export class Deadlines {
  readonly #clock: Clock;
  /** A binary heap: the next one is first. Not shrunk by pop, which would give its memory back and take it anew at each call. */
  readonly #heap: (Moment | undefined)[] = [];
  /** How many stand in the heap, and how many of them are waited for. */
  #size = 0;
  #live = 0;
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
    return this.#live;
  }

  /** Waits until `at`, instead of what it waited for before. */
  set(moment: Moment, timed: Timed, at: number, now: number): void {
    moment.at = at > this.#telling ? at : this.#telling + TICK_MS;
    moment.order = this.#order += 1;
    if (moment.timed === null) this.#live += 1;
    moment.timed = timed;
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

  /**
   * It is not taken out of the heap, which would touch as many others as the heap is deep, but left there until its moment, or
   * until too many were left.
   */
  clear(moment: Moment): void {
    if (moment.timed === null) return;
    moment.timed = null;
    this.#live -= 1;
    if (this.#live === 0) this.#rest();
    else if (this.#size > 2 * this.#live + SPARE) this.#sweep();
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
        this.#takeFirst(first);
        const { timed } = first;
        if (timed === null) continue;
        first.timed = null;
        this.#live -= 1;
        timed.due(now);
      }
      if (this.#live === 0) this.#empty();
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
    for (const moment of this.#heap.slice(0, this.#size)) {
      const timed = moment?.timed ?? null;
      if (moment === undefined || timed === null) continue;
      this.clear(moment);
      timed.stopped?.();
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
    this.#empty();
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

  #takeFirst(first: Moment): void {
    first.index = -1;
    this.#size -= 1;
    const last = this.#heap[this.#size];
    this.#heap[this.#size] = undefined;
    if (last === undefined || last === first) return;
    last.index = 0;
    this.#down(last);
  }

  #empty(): void {
    for (let index = 0; index < this.#size; index += 1) {
      const moment = this.#heap[index];
      if (moment !== undefined) moment.index = -1;
      this.#heap[index] = undefined;
    }
    this.#size = 0;
  }

  /** Those that were cleared leave the heap. */
  #sweep(): void {
    const live = this.#heap.filter((moment) => moment !== undefined && moment.timed !== null) as Moment[];
    this.#empty();
    this.#size = live.length;
    for (const [index, moment] of live.entries()) {
      moment.index = index;
      this.#heap[index] = moment;
    }
    for (const moment of live.slice(0, live.length >> 1).toReversed()) this.#down(moment);
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

/** So many that were cleared may stand in the heap beside twice as many as wait. */
const SPARE = 64;

/** Who is set for a moment that is just being told comes a moment later. */
const TICK_MS = 0.001;

function isBefore(one: Moment, two: Moment): boolean {
  return one.at < two.at || (one.at === two.at && one.order < two.order);
}
