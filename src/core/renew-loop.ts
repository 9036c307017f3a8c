import type { Clock } from "./clock.js";
import { type Deadlines, Moment, type Timed } from "./deadlines.js";
import type { RenewAnswer as Answer, ClaimRequest, Engine, RenewRequest } from "./engine.js";
import { RenewCall, type RenewCaller } from "./renew-call.js";
import { behindOthers } from "./turn.js";

/**
 * How many heartbeats one call carries. What a client with more of them has to send goes out in several, a turn of the event loop
 * each: whatever else the program does gets its turn in between, and an answer that is late is late for these only.
 */
const HEARTBEATS_PER_CALL = 500;

/**
 * How many calls are under way at once, and how many when somebody waits for one. What a slow store cannot take in time waits
 * here, where it can be put in order, and not in a connection: the lease that an answer confirms counts from the sending, so
 * each call in front of one shortens it.
 */
const CALLS_MAX = 4;
const CALLS_MAX_WANTED = 6;

/** How many heartbeats of one claim are under way at once: the next one is due before the first was answered, which may be lost. */
const HEARTBEATS_UNDER_WAY_MAX = 2;

/** A claim that shows heartbeats: a waiter or a hold. It has one entry in the deadline queue, for them and for all else. */
export abstract class Renewable implements Timed {
  /** Made when it is needed: most claims are granted at once and wait for nothing. */
  #moment: Moment | null = null;
  /** When the next heartbeat is due; the loop's. Infinity: it is not renewed. */
  heartbeatAt = Infinity;
  /** How many of its heartbeats are under way and not late; the loop's. */
  underWay = 0;
  /** One more was due meanwhile, and is sent when one of them is answered or late; the loop's. */
  overdue = false;
  /** It is a waiter, and comes after the holders. */
  readonly waits: boolean = false;

  get moment(): Moment {
    return (this.#moment ??= new Moment());
  }

  abstract readonly everyMs: number;
  /** When its lease ends, unless a heartbeat is confirmed before. */
  abstract readonly deadline: number;
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

/** What the loop needs of its client, or of the thread that it runs in. */
type RenewLoopParts = {
  readonly renew: Engine["renew"];
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  /** After this a call without an answer is told of. */
  readonly limitMs: number;
  readonly retryDelayMs: () => number;
  readonly unavailable: (cause: unknown) => void;
};

/**
 * The only renew loop: one per client, for holders and waiters alike. It knows nothing of deadlines: those are kept by
 * whoever lives, so that a renewal which hangs or fails cannot silence them.
 *
 * While a store is slow, few calls are under way and the rest waits in order. An answer counts whenever it comes: what it
 * confirms is counted from the sending. So a call keeps its place also when it is late, and what it carries is not sent again
 * and again beside it.
 */
export class RenewLoop implements Renewals, RenewCaller<Renewable> {
  readonly #parts: RenewLoopParts;
  /** Somebody waits for the answer: a waiter that was woken, a grant to be confirmed. They never stand behind those that are due. */
  readonly #wanted = new Outgoing();
  readonly #due = new Outgoing();
  /** The end of this turn of the event loop sends. */
  #sending = false;
  /** The next turn sends what was too much for this one. */
  #paced = false;
  /** There was no room for a call: what waits is put in order. */
  #behind = false;
  #underWay = 0;
  #stopped = false;

  constructor(parts: RenewLoopParts) {
    this.#parts = parts;
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
    claim.overdue = false;
  }

  /** Its moment in the deadline queue has come: is a heartbeat due? Sets the next moment. */
  proceed(claim: Renewable, now: number): void {
    if (now >= claim.heartbeatAt) {
      claim.heartbeatAt = now + claim.everyMs;
      if (claim.underWay < HEARTBEATS_UNDER_WAY_MAX) this.#addDue(claim);
      else claim.overdue = true;
    }
    this.#parts.deadlines.set(claim.moment, claim, Math.min(claim.heartbeatAt, claim.nextMoment(now)), now);
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
    this.#parts.deadlines.set(claim.moment, claim, Math.min(at, claim.nextMoment(now)), now);
  }

  #addDue(claim: Renewable): void {
    if (this.#stopped) return;
    claim.overdue = false;
    if (!this.#wanted.has(claim)) this.#due.add(claim);
    if (!this.#paced) this.#sendThisTurn();
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
    const claims = this.#nextBatch();
    if (claims.length === 0) return;
    if (this.#wanted.size + this.#due.size > 0) this.#flushNextTurn();
    const { clock, deadlines, limitMs } = this.#parts;
    const sentAt = clock.now();
    const call = new RenewCall(claims, sentAt, limitMs, deadlines, this);
    this.#underWay += 1;
    // Scheduled before it is sent: if this call never returns, the next heartbeat goes out all the same.
    for (const claim of claims) {
      claim.underWay += 1;
      claim.overdue = false;
      this.#schedule(claim, rounded(sentAt + claim.everyMs, claim.everyMs), sentAt);
    }
    const requests = claims.map((claim) => claim.heartbeat());
    void this.#ask(call, requests).then((answers) => this.#answered(call, answers));
  }

  /** As many as one call takes; none while there is no room for a call. */
  #nextBatch(): Renewable[] {
    const batch: Renewable[] = [];
    const isRoom = this.#underWay < CALLS_MAX;
    if (this.#underWay < CALLS_MAX_WANTED) {
      if (this.#behind) for (const outgoing of [this.#wanted, this.#due]) outgoing.putInOrder();
      this.#wanted.moveTo(batch);
      if (isRoom && !this.#paced) this.#due.moveTo(batch);
    }
    this.#behind = !isRoom && this.#wanted.size + this.#due.size > 0;
    return batch;
  }

  #flushNextTurn(): void {
    if (this.#paced) return;
    this.#paced = true;
    this.#parts.clock.after(0, () => {
      this.#paced = false;
      this.#flush();
    });
  }

  /** Never rejects: a failed call leaves every fate unknown, and the deadlines do the rest. */
  async #ask(call: RenewCall<Renewable>, requests: readonly RenewRequest[]): Promise<readonly Answer[]> {
    try {
      const answers = await this.#parts.renew(requests);
      if (!Array.isArray(answers)) throw new TypeError("the engine answered a renewal with no list");
      return answers;
    } catch (cause) {
      if (!call.isLate) this.#parts.unavailable(cause);
      return requests.map(() => ({ kind: "unknown", cause }));
    }
  }

  #answered(call: RenewCall<Renewable>, answers: readonly Answer[]): void {
    const now = this.#parts.clock.now();
    const retryMs = this.#parts.retryDelayMs();
    call.end();
    if (!call.isLost) this.#freePlace();
    call.claims.forEach((claim, index) => {
      if (!call.isLate) claim.underWay -= 1;
      if (claim.heartbeatAt === Infinity) return;
      const answer = answers[index] ?? { kind: "unknown", cause: new Error("the engine left an answer out") };
      if (answer.kind === "unknown") this.#schedule(claim, now + Math.min(claim.everyMs, retryMs), now);
      else if (claim.overdue) this.#addDue(claim);
      claim.answered(answer, call.sentAt);
    });
  }

  late({ claims, sentAt }: RenewCall<Renewable>, cause: Error): void {
    this.#parts.unavailable(cause);
    for (const claim of claims) {
      claim.underWay -= 1;
      if (claim.heartbeatAt === Infinity) continue;
      if (claim.overdue) this.#addDue(claim);
      claim.answered({ kind: "unknown", cause }, sentAt);
    }
  }

  lost({ claims }: RenewCall<Renewable>): void {
    this.#freePlace();
    const now = this.#parts.clock.now();
    const againAt = now + this.#parts.retryDelayMs();
    for (const claim of claims) {
      if (claim.heartbeatAt !== Infinity && claim.heartbeatAt > againAt && claim.underWay === 0)
        this.#schedule(claim, againAt, now);
    }
  }

  /** There is room for another call. */
  #freePlace(): void {
    this.#underWay -= 1;
    if (!this.#paced && this.#wanted.size + this.#due.size > 0) this.#sendThisTurn();
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

  /** Holders before waiters, those that nothing is under way for before the others, and first those whose lease ends first. */
  putInOrder(): void {
    if (this.#claims.size <= HEARTBEATS_PER_CALL) return;
    const all = [...this.#claims].toSorted((one, two) => rank(one) - rank(two) || one.deadline - two.deadline);
    this.#claims.clear();
    for (const claim of all) this.#claims.add(claim);
    this.#untaken = null;
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

function rank({ waits, underWay }: Renewable): number {
  return 2 * Number(waits) + Number(underWay > 0);
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
