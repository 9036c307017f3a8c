import type { Answered, Client } from "./client.js";
import type { Timer } from "./clock.js";
import type { Renewal as Answer, Claim, Engine, EngineEvent, Fence, Sign } from "./engine.js";
import {
  EngineUnavailableError,
  LockLostError,
  type LossReason,
  MisuseError,
  NotHeldError,
  UnsupportedError,
} from "./errors.js";
import type { HandOver, HoldState } from "./hold.js";
import { deadlineOf, renewEveryMs } from "./limits.js";
import { checkLease, type Terms } from "./options.js";
import { Living } from "./renewal.js";

/**
 * The claim after the store's yes, shared by every `Hold` that re-entered it. It keeps the deadline: no call to the store
 * has to return for the holder to be told in time.
 */
export class Grant extends Living {
  readonly client: Client;
  readonly claim: Claim;
  readonly renewed: boolean;
  readonly grantedAt: number;
  readonly #settled: boolean;
  readonly #renewUntil: number;
  #units: number;
  #fence: Fence;
  #deadline: number;
  /** What the store last said, at the sending of that request. */
  #leftMs: number;
  /** When a renewed hold that heard nothing is in jeopardy: a third of the last time left before its deadline. */
  #jeopardyAt: number;
  #inJeopardy = false;
  #ended: "released" | LockLostError | null = null;
  #timer: Timer;
  #abort: AbortController | null = null;
  /** How many holds share it. */
  #count = 0;
  #givenBack: Promise<void> | null = null;

  constructor(
    client: Client,
    claim: Claim,
    terms: Pick<Terms, "renew" | "maxHoldMs">,
    fence: Fence,
    leftMs: number,
    sentAt: number,
    settled: boolean,
  ) {
    super();
    this.client = client;
    this.claim = claim;
    this.renewed = terms.renew;
    this.grantedAt = client.clock.now();
    this.#settled = settled;
    this.#renewUntil = terms.maxHoldMs === undefined ? Infinity : this.grantedAt + terms.maxHoldMs;
    this.#units = claim.units;
    this.#fence = fence;
    this.#deadline = deadlineOf(sentAt, leftMs);
    this.#leftMs = leftMs;
    this.#jeopardyAt = this.#deadline - leftMs / 3;
    this.#timer = this.#arm();
    client.expect(claim.id, this);
    // A hold that lives by a session is asked about although its lease is not to grow: the session may end before it.
    if (!this.renewed && client.engine.promises.crashRelease !== "session") return;
    // Much of the lease may have gone before the answer came. A grant that was pushed goes on where its waiter stood: its
    // confirmation is due when that one's next sign was, so that a short hold needs none.
    client.renewal.add(this, sentAt);
  }

  /** By the time that was left, not by the lease: a grant that came late, or is unconfirmed, has less of it. */
  get everyMs(): number {
    return renewEveryMs(this.#leftMs);
  }

  /** Whether any hold shares it still. */
  get inUse(): boolean {
    return this.#count > 0;
  }

  get units(): number {
    return this.#units;
  }

  get fence(): Fence {
    return this.#fence;
  }

  get token(): number {
    return this.#fence.token + this.client.settings.tokenBase;
  }

  get remainingMs(): number {
    return this.#ended === null ? Math.max(0, this.#deadline - this.client.clock.now()) : 0;
  }

  get ended(): "released" | LockLostError | null {
    // By the clock, not by the timer: after a stalled event loop the timer is late (`pitfalls.md` 12).
    if (this.#ended === null && this.client.clock.now() >= this.#deadline) this.#lose(this.#lateReason());
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

  check(): void {
    const { ended } = this;
    if (ended === "released") throw this.notHeld();
    if (ended !== null) throw ended;
  }

  notHeld(): NotHeldError {
    return new NotHeldError(this.claim.name, this.token);
  }

  /** One more hold shares it. */
  enter(): void {
    this.#count += 1;
  }

  /** One hold less; the last one gives it back. Rejects when it was lost: the work may have been unprotected. */
  async exit(): Promise<void> {
    this.#count -= 1;
    const { ended } = this;
    if (ended instanceof LockLostError) throw ended;
    if (ended === null && this.#count === 0) this.#givenBack = this.#giveBack();
    await this.#givenBack;
  }

  async #giveBack(): Promise<void> {
    const { client, token } = this;
    const { name, id, leaseMs } = this.claim;
    const heldMs = client.clock.now() - this.grantedAt;
    // As long as the lease lasts, a store that is slow is worth waiting for.
    const limitMs = Math.max(client.settings.callTimeoutMs, this.remainingMs);
    this.#end("released");
    try {
      const answer = await client.leave(this.claim, this.#settled, limitMs);
      if (answer !== "released") {
        this.#ended = new LockLostError(name, token, answer);
        throw this.#tell(this.#ended);
      }
    } catch (error) {
      // Not confirmed: go on trying behind the caller's back, until the lease has ended by itself.
      if (error instanceof EngineUnavailableError && !client.closed) client.withdraw(this.claim, false, leaseMs);
      throw error;
    }
    client.events.emit("released", () => ({ name, id, token, heldMs }));
  }

  async extend(ms: number): Promise<void> {
    const { name, id } = this.claim;
    if (this.renewed)
      throw new MisuseError(`"${name}" is renewed by itself; extend() is for holds taken with renew: false.`);
    const leaseMs = checkLease(ms, "ms");
    const { answer, sentAt } = await this.#change("extending", (engine) => engine.renew([{ name, id, leaseMs }]));
    const [renewal] = answer;
    if (renewal === undefined || renewal.kind === "unknown") {
      throw new EngineUnavailableError(this.client.engine.kind, `extending "${name}"`, renewal?.cause);
    }
    this.heard(renewal, sentAt, leaseMs);
    this.check();
  }

  /** A writer becomes a reader. It counts as one from the moment this is sent (`pitfalls.md` 65). */
  async shrink(units: number): Promise<void> {
    this.#assertAlone("downgrade");
    this.#units = units;
    const { answer } = await this.#change("downgrading", (engine) => engine.resize(this.claim, units));
    if (answer !== "resized" && this.ended === null) await this.#askWhy();
    this.check();
  }

  /** The store does not know it any more: a renewal also says whether somebody released it. */
  async #askWhy(): Promise<void> {
    const { name, id } = this.claim;
    const { answer } = await this.#change("downgrading", (engine) => engine.renew([{ name, id }]));
    if (this.ended === null) this.#lose(lossReason(answer[0]));
  }

  /** A call about a hold is of use only while it lives; a loss meanwhile is the answer. */
  async #change<T>(doing: string, call: (engine: Engine) => Promise<T>): Promise<Answered<T>> {
    this.check();
    const { client } = this;
    const unwanted = (): boolean => this.ended !== null;
    try {
      const insist = { until: this.#deadline, unwanted };
      return await client.insist(`${doing} "${this.claim.name}"`, () => call(client.engine), insist);
    } catch (error) {
      this.check();
      throw error;
    }
  }

  #assertAlone(doing: string): void {
    if (this.#count <= 1) return;
    throw new MisuseError(
      `"${this.claim.name}" was re-entered and is still held inside; ${doing} it when those holds are released.`,
    );
  }

  /** Stop here without telling the store; whoever adopts the data goes on. */
  handOver(): HandOver {
    const { client, claim, renewed: renew } = this;
    const { name, id, capacity, leaseMs } = claim;
    if (client.engine.promises.crashRelease === "session") {
      const missing = "a hold ends with the session of its process";
      throw new UnsupportedError(client.engine.kind, missing, "Use an engine whose holds live by lease.");
    }
    this.#assertAlone("hand over");
    this.check();
    const { token } = this;
    const now = client.clock.now();
    this.#end("released");
    client.events.emit("released", () => ({ name, id, token, heldMs: now - this.grantedAt, handedOver: true }));
    const maxHoldMs = this.#renewUntil === Infinity ? undefined : Math.max(1, this.#renewUntil - now);
    return {
      name,
      id,
      units: this.#units,
      capacity,
      leaseMs,
      renew,
      ...(maxHoldMs === undefined ? {} : { maxHoldMs }),
    };
  }

  /** A lease end never moves back: a sign with a short lease asks and changes nothing. */
  sign(): Sign {
    return this.renewed ? this.claim : { name: this.claim.name, id: this.claim.id, leaseMs: 1 };
  }

  heard(answer: Answer, sentAt: number, leaseMs = this.claim.leaseMs): void {
    if (this.ended !== null || answer.kind === "unknown") return;
    // Another token, or a place in the queue, means that the store forgot this grant: it is not ours to revive.
    if (answer.kind !== "granted" || answer.token !== this.#fence.token) return this.#lose(lossReason(answer));
    const leftMs = Math.min(answer.leftMs, leaseMs);
    const deadline = deadlineOf(sentAt, leftMs);
    this.#fence = answer;
    if (deadline <= this.#deadline) return;
    this.#deadline = deadline;
    this.#leftMs = leftMs;
    this.#jeopardyAt = deadline - leftMs / 3;
    this.#inJeopardy = false;
    const { name, id } = this.claim;
    this.client.events.emit("renewed", () => ({ name, id, token: this.token, remainingMs: this.remainingMs }));
  }

  pushed(event: EngineEvent): void {
    if (this.ended !== null) return;
    if (event.kind === "lost") this.#lose("revoked");
    // Not one that is renewed no more, because it was held for long enough.
    if (event.kind === "wake" && this.queue !== null) this.client.renewal.hurry(this);
  }

  /** Given back behind the back of whoever works under it: to them it is a loss. */
  async close(): Promise<void> {
    if (this.ended !== null) return;
    const loss = new LockLostError(this.claim.name, this.token, "closed");
    this.#end(loss);
    this.#tell(loss);
    await this.client.leave(this.claim, this.#settled, this.client.settings.callTimeoutMs);
  }

  /** The next moment that matters. Renewals move it and leave the timer alone: it looks again when it fires. */
  #arm(): Timer {
    const { clock } = this.client;
    const now = clock.now();
    const endOfRenewal = now < this.#renewUntil ? this.#renewUntil : Infinity;
    const at = this.renewed && !this.#inJeopardy ? Math.min(this.#jeopardyAt, endOfRenewal) : this.#deadline;
    return clock.after(Math.max(0, at - now), () => this.look());
  }

  look(): void {
    this.client.clock.cancel(this.#timer);
    if (this.ended !== null) return;
    const now = this.client.clock.now();
    if (now >= this.#renewUntil) this.client.renewal.remove(this);
    if (this.renewed && !this.#inJeopardy && now >= this.#jeopardyAt) {
      this.#inJeopardy = true;
      const { name, id } = this.claim;
      this.client.events.emit("jeopardy", () => ({ name, id, token: this.token, remainingMs: this.remainingMs }));
    }
    // Whoever was told may have released it.
    if (this.#ended === null) this.#timer = this.#arm();
  }

  #lateReason(): LossReason {
    return this.client.clock.now() >= this.#renewUntil ? "max-hold" : "deadline";
  }

  #lose(reason: LossReason): void {
    const loss = new LockLostError(this.claim.name, this.token, reason);
    this.#end(loss);
    this.#tell(loss);
    // The store may still believe in it: others need not wait for the lease, and no late copy may revive it.
    this.client.withdraw(this.claim, false, this.claim.leaseMs);
  }

  #tell(loss: LockLostError): LockLostError {
    this.#abort?.abort(loss);
    const { name, id } = this.claim;
    this.client.events.emit("lost", () => ({ name, id, token: loss.token, reason: loss.reason }));
    return loss;
  }

  #end(ended: "released" | LockLostError): void {
    this.#ended = ended;
    this.client.clock.cancel(this.#timer);
    this.client.renewal.remove(this);
    this.client.forget(this.claim.id, this);
  }
}

/** What a renewal that did not keep the hold says about its end. */
function lossReason(answer: Answer | undefined): LossReason {
  return answer?.kind === "gone" && answer.revoked === true ? "revoked" : "gone";
}
