import type { Clock, Timer } from "./clock.js";
import type { RenewAnswer as Answer, Engine, RenewRequest } from "./engine.js";
import { behindOthers } from "./turn.js";

/** A claim that shows heartbeats: a waiter or a hold. The two fields below belong to the loop. */
export abstract class Renewable {
  dueAt = 0;
  queue: Set<Renewable> | null = null;

  abstract readonly everyMs: number;
  abstract heartbeat(): RenewRequest;
  /** What the store said, and when it was asked. */
  abstract answered(answer: Answer, sentAt: number): void;
}

/** Before everything else. */
const NOW = -Infinity;

/**
 * The only renew loop: one per client, for holders and waiters alike. It knows nothing of deadlines: those are kept by
 * whoever lives, so that a renewal which hangs or fails cannot silence them.
 */
export class RenewLoop {
  readonly #renew: Engine["renew"];
  readonly #clock: Clock;
  readonly #retryDelayMs: () => number;
  readonly #unavailable: (cause: unknown) => void;
  /** By delay: all in one queue wait equally long, so each queue is in order of its due times. */
  readonly #queues = new Map<number, Set<Renewable>>();
  readonly #soon = new Set<Renewable>();
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

  /** Start to send heartbeats, the first one `everyMs` after the last request that counts as one. */
  add(claim: Renewable, lastHeartbeatAt: number): void {
    const { everyMs } = claim;
    // In quarters: with few different delays there are few queues.
    const left = 1 - Math.round(((this.#clock.now() - lastHeartbeatAt) / everyMs) * 4) / 4;
    this.#schedule(claim, left > 0 ? left * everyMs : everyMs);
    if (left <= 0) this.sendSoon(claim);
  }

  remove(claim: Renewable): void {
    this.#soon.delete(claim);
    const queue = claim.queue;
    if (queue === null) return;
    queue.delete(claim);
    claim.queue = null;
  }

  /** Send a heartbeat in this turn of the event loop, together with all others that are asked for in it. */
  sendSoon(claim: Renewable): void {
    if (this.#soon.size === 0) behindOthers(() => this.#flush());
    this.#soon.add(claim);
  }

  /** Time jumped: the timer is late. */
  clockJumped(): void {
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

  #schedule(claim: Renewable, delayMs: number): void {
    if (this.#stopped) return;
    claim.queue?.delete(claim);
    let queue = this.#queues.get(delayMs);
    if (queue === undefined) this.#queues.set(delayMs, (queue = new Set()));
    queue.add(claim);
    claim.queue = queue;
    claim.dueAt = this.#clock.now() + delayMs;
    this.#wakeAt(claim.dueAt);
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
      for (const claim of queue) {
        // What is nearly due goes along: claims taken at odd moments end up in one call.
        if (claim.dueAt > now + delayMs / 8) {
          this.#wakeAt(claim.dueAt);
          break;
        }
        this.#soon.add(claim);
      }
    }
    this.#flush();
  }

  #flush(): void {
    if (this.#soon.size === 0) return;
    const batch = [...this.#soon];
    this.#soon.clear();
    // Scheduled before it is sent: if this call never returns, the next heartbeat goes out all the same.
    for (const claim of batch) this.#schedule(claim, claim.everyMs);
    const sentAt = this.#clock.now();
    const requests = batch.map((claim) => claim.heartbeat());
    void this.#ask(requests).then((answers) => {
      const retryMs = this.#retryDelayMs();
      batch.forEach((claim, index) => {
        if (claim.queue === null) return;
        const answer = answers[index] ?? { kind: "unknown", cause: new Error("the engine left an answer out") };
        if (answer.kind === "unknown") this.#schedule(claim, Math.min(claim.everyMs, retryMs));
        claim.answered(answer, sentAt);
      });
    });
  }

  /** Never rejects: a failed call leaves every fate unknown, and the deadlines do the rest. */
  async #ask(requests: readonly RenewRequest[]): Promise<readonly Answer[]> {
    try {
      const answers = await this.#renew(requests);
      if (!Array.isArray(answers)) throw new TypeError("the engine answered a renewal with no list");
      return answers;
    } catch (cause) {
      this.#unavailable(cause);
      return requests.map(() => ({ kind: "unknown", cause }));
    }
  }
}
