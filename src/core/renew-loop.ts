import type { Clock } from "./clock.js";
import { type Deadlines, Moment, type Timed } from "./deadlines.js";
import type { RenewAnswer as Answer, ClaimRequest, Engine, RenewRequest } from "./engine.js";
import { behindOthers } from "./turn.js";

/**
 * How many heartbeats one call carries. What a client with more of them has to send goes out in several, a turn of the event loop
 * each: whatever else the program does gets its turn in between, and an answer that is late is late for these only.
 */
const HEARTBEATS_PER_CALL = 500;

/** A claim that shows heartbeats: a waiter or a hold. It has one entry in the deadline queue, for them and for all else. */
export abstract class Renewable implements Timed {
  /** Made when it is needed: most claims are granted at once and wait for nothing. */
  #moment: Moment | null = null;
  /** When the next heartbeat is due; the loop's. Infinity: it is not renewed. */
  heartbeatAt = Infinity;

  get moment(): Moment {
    return (this.#moment ??= new Moment());
  }

  abstract readonly everyMs: number;
  abstract heartbeat(): RenewRequest;
  /** What the store said, and when it was asked. */
  abstract answered(answer: Answer, sentAt: number): void;
  /** The next moment that matters to it beside its heartbeats. */
  abstract nextMoment(now: number): number;
  abstract due(now: number): void;
}

/** A hold. What another thread has to know to send its heartbeats. */
export interface Held extends Renewable {
  readonly claim: ClaimRequest;
  readonly storeToken: number;
  readonly leftMs: number;
  readonly renewUntil: number;
  readonly ended: unknown;
}

/** Who sends the heartbeats of holds: the client's own loop, or that of another thread. */
export interface Renewals {
  add(held: Held, lastHeartbeatAt: number, now: number): void;
  remove(held: Held): void;
  proceed(held: Held, now: number): void;
  sendSoon(held: Held): void;
  /** The deadline of a hold by what its client was not told yet; -Infinity where it is told everything. */
  confirmedUntil(held: Held): number;
  stop(): void;
}

/**
 * The only renew loop: one per client, for holders and waiters alike. It knows nothing of deadlines: those are kept by
 * whoever lives, so that a renewal which hangs or fails cannot silence them.
 */
export class RenewLoop implements Renewals {
  readonly #renew: Engine["renew"];
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #retryDelayMs: () => number;
  readonly #unavailable: (cause: unknown) => void;
  /** Somebody waits for the answer: a waiter that was woken, a grant to be confirmed. They never stand behind those that are due. */
  readonly #wanted = new Outgoing();
  readonly #due = new Outgoing();
  /** The end of this turn of the event loop sends. */
  #sending = false;
  /** The next turn sends what was too much for this one. */
  #paced = false;
  #stopped = false;

  /** `renew` has a time limit of its own: what it leaves unanswered is sent again. */
  constructor(
    renew: Engine["renew"],
    clock: Clock,
    deadlines: Deadlines,
    retryDelayMs: () => number,
    unavailable: (cause: unknown) => void,
  ) {
    this.#renew = renew;
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#retryDelayMs = retryDelayMs;
    this.#unavailable = unavailable;
  }

  /** Start to send heartbeats, the first one `everyMs` after the last request that counts as one. */
  add(claim: Renewable, lastHeartbeatAt: number, now: number): void {
    const at = rounded(lastHeartbeatAt + claim.everyMs, claim.everyMs);
    if (at > now) return this.#schedule(claim, at, now);
    this.#schedule(claim, now + claim.everyMs, now);
    this.sendSoon(claim);
  }

  remove(claim: Renewable): void {
    this.#wanted.delete(claim);
    this.#due.delete(claim);
    claim.heartbeatAt = Infinity;
  }

  /** Its moment in the deadline queue has come: is a heartbeat due? Sets the next moment. */
  proceed(claim: Renewable, now: number): void {
    if (now >= claim.heartbeatAt) {
      claim.heartbeatAt = now + claim.everyMs;
      if (!this.#wanted.has(claim)) this.#due.add(claim);
      if (!this.#paced) this.#sendThisTurn();
    }
    this.#deadlines.set(claim.moment, claim, Math.min(claim.heartbeatAt, claim.nextMoment(now)), now);
  }

  /** Send a heartbeat in this turn of the event loop, together with all others that are asked for in it. */
  sendSoon(claim: Renewable): void {
    this.#due.delete(claim);
    this.#wanted.add(claim);
    this.#sendThisTurn();
  }

  confirmedUntil(): number {
    return -Infinity;
  }

  stop(): void {
    this.#stopped = true;
    this.#wanted.clear();
    this.#due.clear();
  }

  #schedule(claim: Renewable, at: number, now: number): void {
    if (this.#stopped) return;
    claim.heartbeatAt = at;
    this.#deadlines.set(claim.moment, claim, Math.min(at, claim.nextMoment(now)), now);
  }

  #sendThisTurn(): void {
    if (this.#sending) return;
    this.#sending = true;
    behindOthers(() => {
      this.#sending = false;
      this.#flush();
    });
  }

  #flush(): void {
    const batch: Renewable[] = [];
    this.#wanted.moveTo(batch);
    if (!this.#paced) this.#due.moveTo(batch);
    if (batch.length === 0) return;
    if (!this.#paced && this.#wanted.size + this.#due.size > 0) {
      this.#paced = true;
      this.#clock.after(0, () => {
        this.#paced = false;
        this.#flush();
      });
    }
    const sentAt = this.#clock.now();
    // Scheduled before it is sent: if this call never returns, the next heartbeat goes out all the same.
    for (const claim of batch) this.#schedule(claim, rounded(sentAt + claim.everyMs, claim.everyMs), sentAt);
    const requests = batch.map((claim) => claim.heartbeat());
    void this.#ask(requests).then((answers) => {
      const now = this.#clock.now();
      const retryMs = this.#retryDelayMs();
      batch.forEach((claim, index) => {
        if (claim.heartbeatAt === Infinity) return;
        const answer = answers[index] ?? { kind: "unknown", cause: new Error("the engine left an answer out") };
        if (answer.kind === "unknown") this.#schedule(claim, now + Math.min(claim.everyMs, retryMs), now);
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

/** Claims whose heartbeats wait for their call, in the order in which they were asked for. */
class Outgoing {
  readonly #claims = new Set<Renewable>();
  /** Those that the next call takes. Kept from call to call: a new one would pass by all that were taken before. */
  #untaken: Iterator<Renewable> | null = null;

  get size(): number {
    return this.#claims.size;
  }

  has(claim: Renewable): boolean {
    return this.#claims.has(claim);
  }

  add(claim: Renewable): void {
    this.#claims.add(claim);
  }

  delete(claim: Renewable): void {
    this.#claims.delete(claim);
  }

  /** They will not be sent, now or later. */
  clear(): void {
    for (const claim of this.#claims) claim.heartbeatAt = Infinity;
    this.#claims.clear();
  }

  /** As many as the call has room for. */
  moveTo(batch: Renewable[]): void {
    if (this.#claims.size === 0) return;
    this.#untaken ??= this.#claims.values();
    while (batch.length < HEARTBEATS_PER_CALL) {
      const { value, done } = this.#untaken.next();
      if (done) break;
      batch.push(value);
      this.#claims.delete(value);
    }
    if (this.#claims.size === 0) this.#untaken = null;
  }
}

/**
 * Up to an eighth of the interval earlier, at a moment that claims with a like interval share: claims taken at odd moments
 * send their heartbeats in one call.
 */
function rounded(at: number, everyMs: number): number {
  // A power of two, so that intervals which differ by little share it.
  const gridMs = 1 << Math.max(0, 28 - Math.clz32(everyMs));
  return Math.floor(at / gridMs) * gridMs;
}
