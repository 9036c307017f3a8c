import type { LastWord } from "./cancellation.js";
import { ClaimCall } from "./claim-call.js";
import { claimOf } from "./claim-request.js";
import type { Client } from "./client.js";
import type {
  Busy,
  ClaimAnswer,
  ClaimRequest,
  EngineEvent,
  Fence,
  Queued,
  RenewAnswer,
  RenewRequest,
  Tombstone,
} from "./engine.js";
import { CapacityMismatchError, ClaimEndedError, EngineUnavailableError, isRefusal } from "./errors.js";
import { Grant } from "./grant.js";
import type { Owner } from "./inspect.js";
import { deadlineOf, POLL_MAX_MS, RETRY_MIN_MS, renewEveryMs, waiterLeaseMs } from "./limits.js";
import { type Relay, type Successor, staysQueued } from "./local-hand-over.js";
import type { Ask, Terms } from "./options.js";
import { Renewable } from "./renew-loop.js";

/** How a claim ended. `again`: ask with a new one. */
export type Outcome = Grant | "busy" | "left" | "again";

/** Who waits for the claim. */
export type Waiter = {
  ended(attempt: Attempt, outcome: Outcome, now: number): void;
  failed(error: unknown): void;
  /** The client closes. */
  closed(): void;
};

/** One claim, from its first sending to its grant or its end. */
export class Attempt extends Renewable implements Successor {
  readonly claim: ClaimRequest;
  readonly everyMs: number;
  override readonly waits: boolean;
  holder: Owner | undefined;
  why: Busy["why"];
  /** Told by the store on arrival; for whoever traces. */
  ahead: string | undefined;
  /** Why the store's last word is not known; null when it is. */
  failure: unknown;
  readonly #client: Client;
  readonly #terms: Terms;
  readonly #waiter: Waiter;
  readonly #round: number;
  readonly #waiterLeaseMs: number;
  #phase: "asking" | "waiting" | "pausing" | "done" = "asking";
  #call: ClaimCall | null = null;
  /** Claimed exactly once, and that call was answered: no copy of it can arrive later. */
  #settled = false;
  /** The sending of the last renewal that was answered `queued`; before that, the first sending of the claim. */
  #heartbeatAt = 0;
  /** How long its place in the queue is sure from there on. */
  #placeMs: number;
  /** Minted when the claim arrived; 0 while that is not known. */
  #token = 0;
  /** The claim directly before it, when that is this client's. */
  #ahead: string | undefined;
  /** A wake overtook the `queued` answer. */
  #woken = false;
  /** While it waits: when a blocking lease ends. While it pauses: when the pause is over. */
  #pollAt = Infinity;
  /** A push came before the claim's own answer, and is being confirmed: the loop knows it already. */
  #confirming = false;

  constructor(client: Client, ask: Ask, terms: Terms, waiter: Waiter, round: number, before: LastWord | null) {
    super();
    // Where the store keeps no queue, the last round's word stands until this one is answered.
    this.failure = before === null ? "no answer yet" : before.failure;
    this.holder = before?.holder;
    this.why = before?.why;
    this.claim = claimOf(client, ask, terms);
    this.waits = this.claim.wait;
    this.#client = client;
    this.#terms = terms;
    this.#waiter = waiter;
    this.#round = round;
    this.#waiterLeaseMs = waiterLeaseMs(terms.leaseMs);
    this.#placeMs = this.#waiterLeaseMs;
    this.everyMs = renewEveryMs(this.#waiterLeaseMs);
  }

  /** A hand-over leaves our waiter lease as it was: it counts from the heartbeat that is known to have set it. */
  get deadline(): number {
    return deadlineOf(this.#heartbeatAt, this.#placeMs);
  }

  start(now: number): void {
    this.#client.addPushTarget(this.claim.id, this);
    if (this.waits) this.#client.limits.entered(this.claim.name);
    this.#heartbeatAt = now;
    // Told not to wait, it is asked for one call's time.
    const until = this.claim.wait ? Infinity : now + this.#client.settings.callTimeoutMs;
    this.#call = new ClaimCall(this.#client, this, until);
    this.#call.start(now);
  }

  claimAnswered(answer: ClaimAnswer, sentAt: number): void {
    this.#settled = this.#sentOnce();
    // A store need not take a claim sent again as a heartbeat: a place in the queue counts from the first sending.
    this.answered(answer, answer.kind === "queued" ? this.#heartbeatAt : sentAt);
  }

  claimFailed(error: unknown): void {
    // A push may have settled the matter while this call was lost.
    if (this.#phase !== "asking") return;
    // A refusal is an answer too; what was lost is not.
    this.#settled = this.#sentOnce() && isRefusal(error);
    this.#fail(error);
  }

  answered(answer: ClaimAnswer | RenewAnswer, sentAt: number): void {
    if (this.#phase === "pausing" || this.#phase === "done") return;
    // A heartbeat that is late tells nothing of a store that answered a later one.
    if (answer.kind === "unknown" && sentAt < this.#heartbeatAt && !isRefusal(answer.cause)) return;
    // "gone" is about this claim and not about the lock: what was known of that still stands.
    if (answer.kind !== "gone") this.failure = answer.kind === "unknown" ? answer.cause : null;
    switch (answer.kind) {
      case "unknown":
        // Refused for good, but the claim stands in the queue: nobody else would take it out of the way.
        if (isRefusal(answer.cause)) this.#fail(answer.cause, true);
        return;
      case "queued":
        return this.#queued(answer, sentAt);
      case "granted":
        return this.#granted(answer, Math.min(answer.leftMs, this.claim.leaseMs), sentAt, this.#client.clock.now());
      case "busy":
        this.holder = answer.holder;
        this.why = answer.why;
        // Where the store keeps no queue (`guarantees.order: "none"`) whoever wants to wait has to ask again.
        return this.claim.wait ? this.#again(!this.#settled, answer.nextMs) : this.#end("busy", !this.#settled);
      case "gone":
        return this.#again(true);
      case "mismatch":
        return this.#fail(new CapacityMismatchError(this.claim.name, this.claim.capacity, answer.capacity));
    }
  }

  pushed(event: EngineEvent): void {
    if (event.kind === "granted") return this.#pushedGrant(event);
    if (this.#phase === "asking") this.#woken = true;
    if (this.#phase === "waiting") this.#client.renewLoop.sendSoon(this);
    if (this.#phase === "pausing") this.#end("again", false);
  }

  heartbeat(): RenewRequest {
    return this.claim;
  }

  /** Its timers only poll; the store's answers count. */
  clockJumped(): void {
    if (this.#phase === "waiting") this.#client.renewLoop.sendSoon(this);
  }

  async close(): Promise<void> {
    this.#waiter.closed();
  }

  /** The caller leaves. What was asked for is withdrawn; while it pauses nothing is. */
  cancelled(): void {
    this.#end("left", this.#phase !== "pausing");
  }

  nextMoment(): number {
    return this.#pollAt;
  }

  due(now: number): void {
    if (this.#phase === "pausing") return this.#end("again", false, now);
    if (now >= this.#pollAt) {
      this.#pollAt = Infinity;
      // Due, and not wanted at once: many who poll must not keep the holders' heartbeats back.
      this.heartbeatAt = Math.min(this.heartbeatAt, now);
    }
    this.#client.renewLoop.proceed(this, now);
  }

  #queued(answer: Queued, sentAt: number): void {
    // Queued anew by a copy of its claim: what was told of its earlier place counts no more.
    if (answer.token !== this.#token) this.#leaveAhead();
    this.#token = Math.max(this.#token, answer.token);
    if (sentAt >= this.#heartbeatAt) {
      this.#heartbeatAt = sentAt;
      this.#placeMs = Math.min(this.#waiterLeaseMs, answer.leftMs ?? Infinity);
    }
    this.holder = answer.holder ?? this.holder;
    const now = this.#client.clock.now();
    if (this.#phase === "asking") {
      this.#phase = "waiting";
      this.#client.renewLoop.add(this, this.#heartbeatAt, now);
      this.ahead = answer.ahead;
      this.#standBehind(answer.ahead);
      const { name, id } = this.claim;
      const { holder } = this;
      this.#client.events.emit("queued", () => ({ name, id, ...(holder === undefined ? {} : { holder }) }));
    }
    // Whoever was told may have left.
    if (this.#phase !== "waiting") return;
    if (this.#woken) this.#client.renewLoop.sendSoon(this);
    this.#woken = false;
    this.#pollAt = Infinity;
    if (answer.nextMs === null) return;
    // The first waiter looks when a blocking lease ends: nobody else would find out that its holder died.
    const polls = this.#client.engine.guarantees.wake === "poll";
    const pollMs = polls ? Math.min(answer.nextMs, POLL_MAX_MS) : answer.nextMs;
    this.#pollAt = now + Math.max(RETRY_MIN_MS, pollMs);
    if (this.#pollAt < this.moment.at) this.#client.deadlines.set(this.moment, this, this.#pollAt, now);
  }

  #standBehind(ahead: string | undefined): void {
    const { claim } = this;
    if (ahead === undefined || !this.#terms.renew || claim.chosen || !staysQueued(claim)) return;
    this.#ahead = ahead;
    this.#client.successors.add(ahead, this);
  }

  #leaveAhead(): void {
    if (this.#ahead !== undefined) this.#client.successors.remove(this.#ahead, this);
    this.#ahead = undefined;
  }

  canFollow(now: number): boolean {
    return this.#phase === "waiting" && this.#isSure(now);
  }

  follow(relay: Relay, now: number): void {
    const token = this.#token;
    const fence = { token, floor: token, ...(this.claim.exact ? { live: [token] } : {}) };
    this.#granted(fence, this.#placeMs, this.#heartbeatAt, now, relay);
  }

  #pushedGrant(fence: Fence): void {
    // It was withdrawn.
    if (this.#phase === "pausing") return;
    // A push that was under way while the store forgot us and queued us again (`pitfalls.md` 61). Before the first answer no
    // other place of ours is known, and the deadline below counts from the first sending.
    if (this.#token !== 0 && fence.token !== this.#token) return;
    const now = this.#client.clock.now();
    // The confirmation starts the lease proper: behind the caller's back where that is safe, otherwise before it goes on.
    if (!this.#terms.renew || !this.#isSure(now)) {
      this.#confirming = true;
      return this.#client.renewLoop.sendSoon(this);
    }
    this.#granted(fence, this.#placeMs, this.#heartbeatAt, now);
  }

  #isSure(now: number): boolean {
    const leftMs = this.deadline - now;
    return leftMs >= this.#waiterLeaseMs / 2 && leftMs > this.#terms.minRemainingMs;
  }

  #granted(fence: Fence, leftMs: number, sentAt: number, now: number, relay: Relay | null = null): void {
    // A slow answer may bring a grant that has ended or is too short to be of use (`pitfalls.md` 7).
    if (deadlineOf(sentAt, leftMs) - now <= this.#terms.minRemainingMs) {
      this.failure = new Error("the grant came with too little time left");
      return this.#again(true);
    }
    const lease = { leftMs, sentAt, tombstone: this.#tombstone, relay };
    this.#end(new Grant(this.#client, this.claim, this.#terms, fence, lease, now), false, now);
  }

  /** Ask anew after a pause, at the latest when a blocking lease has ended; leaving and a wake end it early. */
  #again(withdraw: boolean, nextMs: number | null = null): void {
    const { name, id, wait } = this.claim;
    if (this.#terms.id !== undefined) return this.#fail(new ClaimEndedError(name, id), withdraw);
    if (!wait) {
      const cause = this.failure ?? new Error("the claim was gone when it arrived");
      return this.#fail(new EngineUnavailableError(this.#client.engine.kind, `acquiring "${name}"`, cause), withdraw);
    }
    if (withdraw) this.#withdraw();
    this.#client.renewLoop.remove(this);
    this.#phase = "pausing";
    // A moment later, each after its own: not all of them at the same time.
    const soonestMs = (nextMs ?? Infinity) + this.#client.retryDelayMs(1);
    const now = this.#client.clock.now();
    const againAt = now + Math.min(this.#client.retryDelayMs(this.#round), soonestMs);
    this.#client.deadlines.set(this.moment, this, againAt, now);
  }

  get #tombstone(): Tombstone {
    return this.#settled ? "never" : "always";
  }

  /** Not by a client library that resends, nor, under an id of the caller's own, by a process that died. */
  #sentOnce(): boolean {
    return this.#call?.tries === 1 && this.#terms.id === undefined && !this.#client.engine.resends;
  }

  #fail(error: unknown, withdraw = !this.#settled): void {
    if (this.#phase === "done") return;
    this.#leave(withdraw && this.#phase !== "pausing");
    this.#waiter.failed(error);
  }

  #end(outcome: Outcome, withdraw: boolean, now = this.#client.clock.now()): void {
    if (this.#phase === "done") return;
    this.#leave(withdraw, outcome instanceof Grant);
    this.#waiter.ended(this, outcome, now);
  }

  #leave(withdraw: boolean, passedOn = false): void {
    this.#call?.abandon();
    if (this.#phase !== "asking" || this.#confirming) {
      this.#client.deadlines.clear(this.moment);
      this.#client.renewLoop.remove(this);
    }
    this.#phase = "done";
    if (this.waits) this.#client.limits.left(this.claim.name);
    this.#leaveAhead();
    if (!passedOn) this.#client.removePushTarget(this.claim.id, this);
    if (withdraw) this.#withdraw();
  }

  /** The request may still be on the wire. If it wins after we left, nobody else would give it back. */
  #withdraw(): void {
    this.#client.withdraw(this.claim, this.claim.leaseMs, this.#tombstone);
  }
}
