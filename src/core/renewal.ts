import type { Clock, Timer } from "./clock.js";
import type { Renewal as Answer, Engine, Sign } from "./engine.js";
import { behindOthers } from "./turn.js";

/** A claim that shows signs of life: a waiter or a hold. The two fields below belong to the loop. */
export abstract class Living {
  dueAt = 0;
  queue: Set<Living> | null = null;

  abstract readonly everyMs: number;
  abstract sign(): Sign;
  /** What the store said, and when it was asked. */
  abstract heard(answer: Answer, sentAt: number): void;
}

/** Before everything else. */
const NOW = -Infinity;

/**
 * The only renew loop: one per client, for holders and waiters alike. It knows nothing of deadlines: those are kept by
 * whoever lives, so that a renewal which hangs or fails cannot silence them.
 */
export class Renewal {
  readonly #renew: Engine["renew"];
  readonly #clock: Clock;
  readonly #retryDelayMs: () => number;
  readonly #unavailable: (cause: unknown) => void;
  /** By delay: all in one queue wait equally long, so each queue is in order of its due times. */
  readonly #queues = new Map<number, Set<Living>>();
  readonly #soon = new Set<Living>();
  #timer: Timer | null = null;
  #timerAt = Infinity;
  #stopped = false;

  /** `renew` has a time limit of its own: what it leaves unanswered is sent again. */
  constructor(renew: Engine["renew"], clock: Clock, retryDelayMs: () => number, unavailable: (cause: unknown) => void) {
    this.#renew = renew;
    this.#clock = clock;
    this.#retryDelayMs = retryDelayMs;
    this.#unavailable = unavailable;
  }

  /** Start to send signs, the first one `everyMs` after the last request that counts as one. */
  add(living: Living, signAt: number): void {
    const { everyMs } = living;
    // In quarters: with few different delays there are few queues.
    const left = 1 - Math.round(((this.#clock.now() - signAt) / everyMs) * 4) / 4;
    this.#schedule(living, left > 0 ? left * everyMs : everyMs);
    if (left <= 0) this.hurry(living);
  }

  remove(living: Living): void {
    this.#soon.delete(living);
    const queue = living.queue;
    if (queue === null) return;
    queue.delete(living);
    living.queue = null;
  }

  /** Send a sign in this turn of the event loop, together with all others that are asked for in it. */
  hurry(living: Living): void {
    if (this.#soon.size === 0) behindOthers(() => this.#flush());
    this.#soon.add(living);
  }

  /** Time jumped: the timer is late. */
  look(): void {
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#tick();
  }

  stop(): void {
    this.#stopped = true;
    this.#soon.clear();
    this.#queues.clear();
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  #schedule(living: Living, delayMs: number): void {
    if (this.#stopped) return;
    living.queue?.delete(living);
    let queue = this.#queues.get(delayMs);
    if (queue === undefined) this.#queues.set(delayMs, (queue = new Set()));
    queue.add(living);
    living.queue = queue;
    living.dueAt = this.#clock.now() + delayMs;
    this.#wakeAt(living.dueAt);
  }

  #wakeAt(at: number): void {
    const now = this.#clock.now();
    // An overdue timer may have missed a jump of the clock. It is set anew for now, and left alone from then on: put off by
    // each that comes it would never fire.
    const next = this.#timerAt <= now ? NOW : at;
    if (next >= this.#timerAt) return;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timerAt = next;
    this.#timer = this.#clock.after(Math.max(0, next - now), () => this.#tick());
  }

  #tick(): void {
    this.#timer = null;
    this.#timerAt = Infinity;
    const now = this.#clock.now();
    for (const [delayMs, queue] of this.#queues) {
      if (queue.size === 0) this.#queues.delete(delayMs);
      for (const living of queue) {
        // What is nearly due goes along: claims taken at odd moments end up in one call.
        if (living.dueAt > now + delayMs / 8) {
          this.#wakeAt(living.dueAt);
          break;
        }
        this.#soon.add(living);
      }
    }
    this.#flush();
  }

  #flush(): void {
    if (this.#soon.size === 0) return;
    const batch = [...this.#soon];
    this.#soon.clear();
    // Scheduled before it is sent: if this call never returns, the next sign goes out all the same.
    for (const living of batch) this.#schedule(living, living.everyMs);
    const sentAt = this.#clock.now();
    const signs = batch.map((living) => living.sign());
    void this.#ask(signs).then((answers) => {
      const retryMs = this.#retryDelayMs();
      batch.forEach((living, index) => {
        if (living.queue === null) return;
        const answer = answers[index] ?? { kind: "unknown", cause: new Error("the engine left an answer out") };
        if (answer.kind === "unknown") this.#schedule(living, Math.min(living.everyMs, retryMs));
        living.heard(answer, sentAt);
      });
    });
  }

  /** Never rejects: a failed call leaves every fate unknown, and the deadlines do the rest. */
  async #ask(signs: readonly Sign[]): Promise<readonly Answer[]> {
    try {
      const answers = await this.#renew(signs);
      if (!Array.isArray(answers)) throw new TypeError("the engine answered a renewal with no list");
      return answers;
    } catch (cause) {
      this.#unavailable(cause);
      return signs.map(() => ({ kind: "unknown", cause }));
    }
  }
}
