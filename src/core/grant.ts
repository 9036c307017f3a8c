import type { Answered } from "./call.js";
import { checkLease } from "./checks.js";
import type { Client } from "./client.js";
import type {
  RenewAnswer as Answer,
  ClaimRequest,
  Engine,
  EngineEvent,
  Fence,
  ReleaseAnswer,
  RenewRequest,
  Tombstone,
} from "./engine.js";
import { EngineUnavailableError, LockLostError, type LossReason, MisuseError, NotHeldError } from "./errors.js";
import type { HandOver } from "./hand-over.js";
import { assertAlone, assertByLease, type HoldState, type Lease, lossReason, type RenewTerms } from "./hold-state.js";
import { deadlineOf, renewEveryMs, waiterLeaseMs } from "./limits.js";
import { type Relay, type Releaser, releaseToSuccessor } from "./local-hand-over.js";
import { type Held, Renewable } from "./renew-loop.js";
import { type HoldTracing, traceRelease, wantsReleases } from "./tracing.js";

const DONE = Promise.resolve();

/**
 * The claim after the store's yes, shared by every `Hold` that re-entered it. It keeps the deadline: no call to the store
 * has to return for the holder to be told in time.
 */
export class Grant extends Renewable implements Held, Releaser {
  readonly client: Client;
  readonly claim: ClaimRequest;
  readonly renewed: boolean;
  readonly grantedAt: number;
  readonly #tombstone: Tombstone;
  readonly renewUntil: number;
  /** Fewer than it asked for when it was shrunk. */
  units: number;
  fence: Fence;
  readonly storeToken: number;
  deadline: number;
  /** What the store last said, at the sending of that request. */
  leftMs: number;
  /** When a renewed hold that heard nothing is in jeopardy: a third of the last time left before its deadline. */
  #jeopardyAt: number;
  #inJeopardy = false;
  #ended: "released" | LockLostError | null = null;
  #abort: AbortController | null = null;
  /** How many holds share it. */
  #count = 0;
  #releasing: Promise<void> | null = null;
  #resolve!: () => void;
  #reject!: (error: unknown) => void;
  #heldMs = 0;
  readonly #relay: Relay | null;
  trace: HoldTracing | null = null;

  constructor(client: Client, claim: ClaimRequest, terms: RenewTerms, fence: Fence, lease: Lease, now: number) {
    super();
    const { leftMs, sentAt, tombstone, relay } = lease;
    this.client = client;
    this.claim = claim;
    this.renewed = terms.renew;
    this.grantedAt = now;
    this.#tombstone = tombstone;
    this.renewUntil = terms.maxHoldMs === undefined ? Infinity : this.grantedAt + terms.maxHoldMs;
    this.units = claim.units;
    this.fence = fence;
    this.storeToken = lease.storeToken ?? fence.token;
    this.deadline = deadlineOf(sentAt, leftMs);
    this.leftMs = leftMs;
    this.#jeopardyAt = this.deadline - leftMs / 3;
    this.#relay = relay;
    client.replacePushTarget(claim.id, this);
    // Much of the lease may have gone before the answer came. A grant that was pushed goes on where its waiter stood: its
    // confirmation is due when that one's next heartbeat was, so that a short hold needs none. A hold that lives by a session
    // is asked about although its lease is not to grow: the session may end before it.
    if (this.renewed || client.engine.guarantees.crashRelease === "session") client.holdLoop.add(this, sentAt, now);
    else client.deadlines.set(this.moment, this, this.nextMoment(now), now);
  }

  /** By the time that was left, not by the lease: a grant that came late, or is unconfirmed, has less of it. */
  get everyMs(): number {
    return renewEveryMs(this.leftMs);
  }

  /** Whether any hold shares it still. */
  get inUse(): boolean {
    return this.#count > 0;
  }

  get token(): number {
    return this.fence.token + this.client.settings.tokenBase;
  }

  get remainingMs(): number {
    const now = this.client.clock.now();
    this.#learn(now);
    return this.#ended === null ? Math.max(0, this.deadline - now) : 0;
  }

  get ended(): "released" | LockLostError | null {
    if (this.#ended === null) this.#loseIfLate(this.client.clock.now());
    return this.#ended;
  }

  get state(): HoldState {
    const { ended } = this;
    if (ended !== null) return ended === "released" ? "released" : "lost";
    return this.renewed && this.client.clock.now() >= this.#jeopardyAt ? "jeopardy" : "held";
  }

  /** Made on first use: most holds end before anybody looks. */
  get signal(): AbortSignal {
    if (this.#abort === null) {
      this.#abort = new AbortController();
      const { ended } = this;
      if (ended !== null && ended !== "released") this.#abort.abort(ended);
    }
    return this.#abort.signal;
  }

  throwIfLost(): void {
    const { ended } = this;
    if (ended === "released") throw this.notHeld();
    if (ended !== null) throw ended;
  }

  notHeld(): NotHeldError {
    return new NotHeldError(this.claim.name, this.token);
  }

  /** One more hold shares it. */
  addHold(): void {
    this.#count += 1;
  }

  /** One hold less; the last one gives it back. Rejects when it was lost: the work may have been unprotected. */
  removeHold(): Promise<void> {
    this.#count -= 1;
    const now = this.client.clock.now();
    if (this.#ended === null) this.#loseIfLate(now);
    if (this.#ended instanceof LockLostError) return Promise.reject(this.#ended);
    if (this.#ended === null && this.#count === 0) {
      this.#releasing = wantsReleases() ? traceRelease(this, () => this.release(now)) : this.release(now);
    }
    return this.#releasing ?? DONE;
  }

  protected release(now: number): Promise<void> {
    const { client } = this;
    const { name, id } = this.claim;
    // As long as the lease lasts, a store that is slow is worth waiting for.
    const limitMs = Math.max(client.settings.callTimeoutMs, this.deadline - now);
    this.#end("released");
    this.#heldMs = now - this.grantedAt;
    const releasing = new Promise<void>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    const request = { name, id, tombstone: this.#tombstone };
    // An older hold that lives beside it keeps out whoever is next.
    const alone = this.fence.floor === this.fence.token;
    if (alone) releaseToSuccessor(client, request, this.#relay, limitMs, now, this);
    else client.startReleasing(request, limitMs, now, this, null);
    return releasing;
  }

  released(answer: ReleaseAnswer): void {
    const { name, id } = this.claim;
    if (answer === "released") {
      this.client.events.emit("released", () => ({ name, id, token: this.token, heldMs: this.#heldMs }));
      this.trace?.ended("released", this.#heldMs);
      return this.#resolve();
    }
    this.#ended = new LockLostError(name, this.token, answer);
    this.#reject(this.#announceLoss(this.#ended, this.#heldMs));
  }

  notReleased(error: unknown): void {
    // Not confirmed: go on trying behind the caller's back, until the lease has ended by itself.
    const { client, claim } = this;
    if (error instanceof EngineUnavailableError && !client.closed) client.withdraw(claim, claim.leaseMs);
    this.trace?.ended("released", this.#heldMs);
    this.#reject(error);
  }

  /** The claim goes on as another grant of this client: the store is told nothing. */
  passOn(): Lease {
    this.#end("released");
    const [leftMs, tombstone, relay] = [this.leftMs, this.#tombstone, this.#relay];
    return { leftMs, sentAt: this.deadline - deadlineOf(0, leftMs), tombstone, relay, storeToken: this.storeToken };
  }

  async extend(ms: number): Promise<void> {
    const { name, id } = this.claim;
    if (this.renewed)
      throw new MisuseError(`"${name}" is renewed by itself; extend() is for holds taken with renew: false.`);
    const leaseMs = checkLease(ms, "ms");
    const extended = await this.#change("extending", (engine) => engine.renew([{ name, id, leaseMs }]));
    const [renewal] = extended.answer;
    if (renewal === undefined || renewal.kind === "unknown")
      throw new EngineUnavailableError(this.client.engine.kind, `extending "${name}"`, renewal?.cause);
    this.answered(renewal, extended.sentAt, leaseMs);
    this.throwIfLost();
  }

  /** A writer becomes a reader. It counts as one from the moment this is sent (`pitfalls.md` 65). */
  async shrink(units: number): Promise<void> {
    assertAlone(this.#count, this.claim.name, "downgrade");
    this.units = units;
    await this.#relay?.settled();
    const { answer } = await this.#change("downgrading", (engine) => engine.resize(this.claim, units));
    if (answer !== "resized" && this.ended === null) await this.#askWhy();
    this.throwIfLost();
  }

  /** The store does not know it any more: a renewal also says whether somebody released it. */
  async #askWhy(): Promise<void> {
    const { name, id } = this.claim;
    const { answer } = await this.#change("downgrading", (engine) => engine.renew([{ name, id }]));
    if (this.ended === null) this.#lose(lossReason(answer[0]));
  }

  /** A call about a hold is of use only while it lives; a loss meanwhile is the answer. */
  async #change<T>(doing: string, call: (engine: Engine) => Promise<T>): Promise<Answered<T>> {
    this.throwIfLost();
    const { client } = this;
    const limits = { until: this.deadline, unwanted: () => this.ended !== null };
    try {
      return await client.callUntilAnswered(`${doing} "${this.claim.name}"`, () => call(client.engine), limits);
    } catch (error) {
      this.throwIfLost();
      throw error;
    }
  }

  /** Stop here without telling the store; whoever adopts the data goes on. */
  handOver(): HandOver {
    const { client, claim, renewed: renew } = this;
    const { name, id, capacity, leaseMs } = claim;
    assertByLease(client.engine, "a hold ends with the session of its process");
    assertAlone(this.#count, name, "hand over");
    this.throwIfLost();
    const now = client.clock.now();
    this.#end("released");
    const [token, heldMs] = [this.token, now - this.grantedAt];
    client.events.emit("released", () => ({ name, id, token, heldMs, handedOver: true }));
    this.trace?.ended("handed-over", heldMs);
    const data = { name, id, units: this.units, capacity, leaseMs, renew };
    return this.renewUntil === Infinity ? data : { ...data, maxHoldMs: Math.max(1, this.renewUntil - now) };
  }

  /** A lease end never moves back: a heartbeat with a short lease asks and changes nothing. */
  heartbeat(): RenewRequest {
    return this.renewed ? this.claim : { name: this.claim.name, id: this.claim.id, leaseMs: 1 };
  }

  answered(answer: Answer, sentAt: number, leaseMs = this.claim.leaseMs): void {
    if (this.ended !== null || answer.kind === "unknown") return;
    // Another token, or a place in the queue, means that the store forgot this grant: it is not ours to revive.
    if (answer.kind === "gone" || answer.token !== this.fence.token) return this.#lose(lossReason(answer));
    // Unless it was handed over here, and the store has not heard of that.
    if (answer.kind === "queued" && !this.#relay?.mayWait(sentAt)) return this.#lose("gone");
    if (answer.kind === "granted") this.fence = answer;
    const leftMs = Math.min(answer.leftMs ?? Infinity, answer.kind === "granted" ? leaseMs : waiterLeaseMs(leaseMs));
    this.#confirmed(deadlineOf(sentAt, leftMs), leftMs);
  }

  /** What another thread was told, while this one stood still, counts too. */
  #learn(now: number): void {
    if (now >= this.#jeopardyAt) this.#confirmed(this.client.holdLoop.confirmedUntil(this), this.leftMs);
  }

  #confirmed(deadline: number, leftMs: number): void {
    if (deadline <= this.deadline) return;
    this.deadline = deadline;
    this.leftMs = leftMs;
    this.#jeopardyAt = deadline - leftMs / 3;
    this.#inJeopardy = false;
    const { name, id } = this.claim;
    this.client.events.emit("renewed", () => ({ name, id, token: this.token, remainingMs: this.remainingMs }));
  }

  pushed(event: EngineEvent): void {
    if (this.ended !== null) return;
    if (event.kind === "lost") this.#lose("revoked");
    // Not one that is renewed no more, because it was held for long enough.
    if (event.kind === "wake" && this.heartbeatAt !== Infinity) this.client.holdLoop.sendSoon(this);
  }

  /** Given back behind the back of whoever works under it: to them it is a loss. */
  async close(draining = false): Promise<void> {
    if (draining || this.ended !== null) return;
    const loss = new LockLostError(this.claim.name, this.token, "closed");
    this.#end(loss);
    this.#announceLoss(loss);
    await this.client.release(this.claim, this.#tombstone, this.client.settings.callTimeoutMs);
  }

  /** Renewals move it and leave the deadline queue alone: it looks again when its moment has come. */
  nextMoment(now: number): number {
    if (!this.renewed || this.#inJeopardy) return this.deadline;
    return now < this.renewUntil ? Math.min(this.#jeopardyAt, this.renewUntil) : this.#jeopardyAt;
  }

  due(now: number): void {
    if (this.ended !== null) return;
    if (now >= this.renewUntil) this.client.holdLoop.remove(this);
    if (this.renewed && !this.#inJeopardy && now >= this.#jeopardyAt) {
      this.#inJeopardy = true;
      const { name, id } = this.claim;
      this.client.events.emit("jeopardy", () => ({ name, id, token: this.token, remainingMs: this.remainingMs }));
    }
    // Whoever was told may have released it.
    if (this.#ended === null) this.client.holdLoop.proceed(this, now);
  }

  clockJumped(): void {
    this.due(this.client.clock.now());
  }

  /** By the clock, not by the timer: after a stalled event loop the timer is late (`pitfalls.md` 12). */
  #loseIfLate(now: number): void {
    this.#learn(now);
    if (now >= this.deadline) this.#lose(now >= this.renewUntil ? "max-hold" : "deadline");
  }

  #lose(reason: LossReason): void {
    const loss = new LockLostError(this.claim.name, this.token, reason);
    this.#end(loss);
    this.#announceLoss(loss);
    // The store may still believe in it: others need not wait for the lease, and no late copy may revive it.
    this.client.withdraw(this.claim, this.claim.leaseMs);
  }

  #announceLoss(loss: LockLostError, heldMs = this.client.clock.now() - this.grantedAt): LockLostError {
    this.#abort?.abort(loss);
    const { name, id } = this.claim;
    this.client.events.emit("lost", () => ({ name, id, token: loss.token, reason: loss.reason }));
    this.trace?.ended(loss, heldMs);
    return loss;
  }

  #end(ended: "released" | LockLostError): void {
    this.#ended = ended;
    this.client.deadlines.clear(this.moment);
    this.client.holdLoop.remove(this);
    this.client.removePushTarget(this.claim.id, this);
  }
}
