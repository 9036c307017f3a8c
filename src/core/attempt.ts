import type { Cancellation } from "./cancellation.js";
import type { Client } from "./client.js";
import type { Timer } from "./clock.js";
import type {
  Busy,
  ClaimAnswer,
  ClaimRequest,
  EngineEvent,
  Fence,
  Queued,
  RenewAnswer,
  RenewRequest,
} from "./engine.js";
import { CapacityMismatchError, ClaimEndedError, EngineUnavailableError, isRefusal } from "./errors.js";
import { Grant } from "./grant.js";
import type { Owner } from "./inspect.js";
import { deadlineOf, POLL_MAX_MS, RETRY_MIN_MS, renewEveryMs, waiterLeaseMs } from "./limits.js";
import type { Ask, Terms } from "./options.js";
import { Renewable } from "./renew-loop.js";

/** `again`: this claim has ended, ask with a new one. */
export type Outcome = Grant | "busy" | "left" | "again";

/** One claim, from its first sending to its grant or its end. */
export class Attempt extends Renewable {
  readonly claim: ClaimRequest;
  readonly everyMs: number;
  holder: Owner | undefined;
  why: Busy["why"];
  /** Why the store's last word is not known; null when it is. */
  failure: unknown;
  readonly #client: Client;
  readonly #terms: Terms;
  readonly #cancellation: Cancellation;
  readonly #round: number;
  readonly #waiterLeaseMs: number;
  #phase: "asking" | "waiting" | "pausing" | "done" = "asking";
  #sends = 0;
  /** Claimed exactly once, and that call was answered: no copy of it can arrive later. */
  #settled = false;
  /** The sending of the last renewal that was answered `queued`; before that, the first sending of the claim. */
  #heartbeatAt = 0;
  #lastToken = 0;
  /** A wake overtook the `queued` answer. */
  #woken = false;
  #timer: Timer | null = null;
  #resolve: (outcome: Outcome) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(
    client: Client,
    ask: Ask,
    terms: Terms,
    cancellation: Cancellation,
    round: number,
    before: Attempt | null,
  ) {
    super();
    // Where the store keeps no queue, the last round's word stands until this one is answered.
    this.failure = before === null ? "no answer yet" : before.failure;
    this.holder = before?.holder;
    this.why = before?.why;
    const { leaseMs, label, exact, renew } = terms;
    this.claim = {
      name: ask.name,
      id: terms.id ?? client.chance.id(),
      units: ask.units,
      capacity: ask.capacity,
      leaseMs,
      wait: terms.waitMs !== 0,
      owner: label === undefined ? client.owner : { ...client.owner, label },
      ...(ask.data === undefined ? {} : { data: ask.data }),
      ...(ask.leaseOnly === true ? { leaseOnly: true } : {}),
      ...(exact ? { exact } : {}),
      ...(renew ? {} : { fixed: true }),
      ...(terms.id === undefined ? {} : { chosen: true }),
    };
    this.#client = client;
    this.#terms = terms;
    this.#cancellation = cancellation;
    this.#round = round;
    this.#waiterLeaseMs = waiterLeaseMs(leaseMs);
    this.everyMs = renewEveryMs(this.#waiterLeaseMs);
  }

  run(): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#client.addPushTarget(this.claim.id, this);
      // Left between two rounds: nothing was asked yet.
      if (this.#cancellation.cancelled) return this.#end("left", false);
      this.#cancellation.onCancel = () => this.#end("left", true);
      this.#heartbeatAt = this.#client.clock.now();
      void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    const { engine, clock, settings } = this.#client;
    const call = async (): Promise<ClaimAnswer> => {
      this.#sends += 1;
      try {
        return await engine.claim(this.claim);
      } catch (cause) {
        this.failure = cause;
        throw cause;
      }
    };
    const once = !this.claim.wait;
    const until = once ? clock.now() + settings.callTimeoutMs : Infinity;
    const limits = { until, once, unwanted: (): boolean => this.#phase !== "asking" };
    try {
      const { answer, sentAt } = await this.#client.callUntilAnswered(`acquiring "${this.claim.name}"`, call, limits);
      this.#settled = this.#sentOnce();
      // A store need not take a claim sent again as a heartbeat: a place in the queue counts from the first sending.
      this.answered(answer, answer.kind === "queued" ? this.#heartbeatAt : sentAt);
    } catch (error) {
      // A push may have settled the matter while this call was lost.
      if (this.#phase !== "asking") return;
      // A refusal is an answer too; what was lost is not.
      this.#settled = this.#sentOnce() && isRefusal(error);
      this.#fail(error);
    }
  }

  answered(answer: ClaimAnswer | RenewAnswer, sentAt: number): void {
    if (this.#phase === "pausing" || this.#phase === "done") return;
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
        return this.#granted(answer, Math.min(answer.leftMs, this.claim.leaseMs), sentAt);
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
    this.#cancellation.cancel("closed");
  }

  #queued(answer: Queued, sentAt: number): void {
    this.#lastToken = Math.max(this.#lastToken, answer.lastToken);
    this.#heartbeatAt = Math.max(this.#heartbeatAt, sentAt);
    this.holder = answer.holder ?? this.holder;
    if (this.#phase === "asking") {
      this.#phase = "waiting";
      this.#client.renewLoop.add(this, this.#heartbeatAt);
      const { name, id } = this.claim;
      const { holder } = this;
      this.#client.events.emit("queued", () => ({ name, id, ...(holder === undefined ? {} : { holder }) }));
    }
    // Whoever was told may have left.
    if (this.#phase !== "waiting") return;
    if (this.#woken) this.#client.renewLoop.sendSoon(this);
    this.#woken = false;
    if (answer.nextMs === null) return;
    // The first waiter looks when a blocking lease ends: nobody else would find out that its holder died.
    const polls = this.#client.engine.guarantees.wake === "poll";
    const pollMs = polls ? Math.min(answer.nextMs, POLL_MAX_MS) : answer.nextMs;
    this.#setTimer(Math.max(RETRY_MIN_MS, pollMs), () => this.#client.renewLoop.sendSoon(this));
  }

  /** The hand-over left our waiter lease as it was: the deadline counts from the heartbeat that is known to have set it. */
  #pushedGrant(fence: Fence): void {
    // A push that was under way while the store forgot us and queued us again (`pitfalls.md` 61).
    if (this.#phase === "pausing" || this.#phase === "done" || fence.token <= this.#lastToken) return;
    const leftMs = deadlineOf(this.#heartbeatAt, this.#waiterLeaseMs) - this.#client.clock.now();
    // The confirmation starts the lease proper: behind the caller's back where that is safe, otherwise before it goes on.
    const enough = leftMs >= Math.max(this.#waiterLeaseMs / 2, this.#terms.minRemainingMs);
    if (!this.#terms.renew || !enough) return this.#client.renewLoop.sendSoon(this);
    this.#granted(fence, this.#waiterLeaseMs, this.#heartbeatAt);
  }

  #granted(fence: Fence, leftMs: number, sentAt: number): void {
    // A slow answer may bring a grant that has ended or is too short to be of use (`pitfalls.md` 7).
    const tooShort = deadlineOf(sentAt, leftMs) - this.#client.clock.now() <= this.#terms.minRemainingMs;
    if (tooShort) {
      this.failure = new Error("the grant came with too little time left");
      return this.#again(true);
    }
    const grant = new Grant(
      this.#client,
      this.claim,
      this.#terms,
      fence,
      leftMs,
      sentAt,
      this.#settled ? "never" : "always",
    );
    this.#end(grant, false);
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
    this.#cancellation.onCancel = () => this.#end("left", false);
    // A moment later, each after its own: not all of them at the same time.
    const soonestMs = (nextMs ?? Infinity) + this.#client.retryDelayMs(1);
    this.#setTimer(Math.min(this.#client.retryDelayMs(this.#round), soonestMs), () => this.#end("again", false));
  }

  /** Not by a client library that resends, nor, under an id of the caller's own, by a process that died. */
  #sentOnce(): boolean {
    return this.#sends === 1 && this.#terms.id === undefined && !this.#client.engine.resends;
  }

  #setTimer(ms: number, run: () => void): void {
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#timer = this.#client.clock.after(ms, run);
  }

  #fail(error: unknown, withdraw = !this.#settled): void {
    if (this.#phase === "done") return;
    this.#reject(error);
    this.#end("left", withdraw && this.#phase !== "pausing");
  }

  #end(outcome: Outcome, withdraw: boolean): void {
    if (this.#phase === "done") return;
    this.#phase = "done";
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#client.renewLoop.remove(this);
    this.#client.removePushTarget(this.claim.id, this);
    this.#cancellation.onCancel = () => {};
    if (withdraw) this.#withdraw();
    this.#resolve(outcome);
  }

  /** The request may still be on the wire. If it wins after we left, nobody else would give it back. */
  #withdraw(): void {
    this.#client.withdraw(this.claim, this.claim.leaseMs);
  }
}
