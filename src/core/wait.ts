import type { Client } from "./client.js";
import type { Timer } from "./clock.js";
import type { Answer, Busy, Claim, EngineEvent, Fence, Queued, Renewal, Sign } from "./engine.js";
import { CapacityMismatchError, ClaimEndedError, EngineUnavailableError, isRefusal } from "./errors.js";
import { Blocked, Exit } from "./exit.js";
import { Grant } from "./grant.js";
import type { Owner } from "./inspect.js";
import { deadlineOf, POLL_MAX_MS, RETRY_MIN_MS, renewEveryMs, waiterLeaseMs } from "./limits.js";
import type { Terms } from "./options.js";
import { Living } from "./renewal.js";

/** What a recipe asks for: `units` of `capacity` under `name`. */
export type Ask = {
  readonly name: string;
  readonly units: number;
  readonly capacity: number;
  /** Small; shown by `inspect` for as long as the claim lives. */
  readonly data?: string;
  readonly leaseOnly?: boolean;
};

/**
 * The only wait loop: ask until granted, until told that it is not our turn (`waitMs: 0`), or until the caller leaves.
 * Each round is a new claim with a new id: an id that ended is never used again.
 */
export async function take(client: Client, ask: Ask, terms: Terms): Promise<Grant | Blocked> {
  client.assertOpen(`acquiring "${ask.name}"`);
  terms.signal?.throwIfAborted();
  if (terms.id !== undefined) client.assertUnused(ask.name, terms.id);
  const startedAt = client.clock.now();
  const exit = new Exit(client, terms);
  try {
    let attempt: Attempt | null = null;
    for (let round = 1; ; round += 1) {
      if (client.closed) exit.take("closed");
      attempt = new Attempt(client, ask, terms, exit, round, attempt);
      const outcome = await attempt.run();
      const waitedMs = client.clock.now() - startedAt;
      if (outcome instanceof Grant) {
        const { name, id } = outcome.claim;
        client.events.emit("granted", () => ({ name, id, token: outcome.token, waitedMs }));
        // Whoever was told may have closed the client.
        outcome.check();
        return outcome;
      }
      if (outcome === "busy") return new Blocked(attempt, 0);
      if (outcome === "left") return exit.leave(ask.name, attempt, waitedMs);
    }
  } finally {
    exit.dispose();
  }
}

/** `again`: this claim has ended, ask with a new one. */
type Outcome = Grant | "busy" | "left" | "again";

/** One claim, from its first sending to its grant or its end. */
class Attempt extends Living {
  readonly claim: Claim;
  readonly everyMs: number;
  holder: Owner | undefined;
  why: Busy["why"];
  /** Why the store's last word is not known; null when it is. */
  failure: unknown;
  readonly #client: Client;
  readonly #terms: Terms;
  readonly #exit: Exit;
  readonly #round: number;
  readonly #waiterLeaseMs: number;
  #phase: "asking" | "waiting" | "pausing" | "done" = "asking";
  #sends = 0;
  /** Claimed exactly once, and that call was answered: no copy of it can arrive later. */
  #settled = false;
  /** The sending of the last renewal that was answered `queued`; before that, the first sending of the claim. */
  #signAt = 0;
  #lastToken = 0;
  /** A wake overtook the `queued` answer. */
  #woken = false;
  #timer: Timer | null = null;
  #resolve: (outcome: Outcome) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(client: Client, ask: Ask, terms: Terms, exit: Exit, round: number, before: Attempt | null) {
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
    this.#exit = exit;
    this.#round = round;
    this.#waiterLeaseMs = waiterLeaseMs(leaseMs);
    this.everyMs = renewEveryMs(this.#waiterLeaseMs);
  }

  run(): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      this.#client.expect(this.claim.id, this);
      // Left between two rounds: nothing was asked yet.
      if (this.#exit.taken) return this.#end("left", false);
      this.#exit.onTaken = () => this.#end("left", true);
      this.#signAt = this.#client.clock.now();
      void this.#ask();
    });
  }

  async #ask(): Promise<void> {
    const { engine, clock, settings } = this.#client;
    const call = async (): Promise<Answer> => {
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
    const insist = { until, once, unwanted: (): boolean => this.#phase !== "asking" };
    try {
      const { answer, sentAt } = await this.#client.insist(`acquiring "${this.claim.name}"`, call, insist);
      this.#settled = this.#sentOnce();
      // A store need not take a claim sent again as a sign of life: a place in the queue counts from the first sending.
      this.heard(answer, answer.kind === "queued" ? this.#signAt : sentAt);
    } catch (error) {
      // A push may have settled the matter while this call was lost.
      if (this.#phase !== "asking") return;
      // A refusal is an answer too; what was lost is not.
      this.#settled = this.#sentOnce() && isRefusal(error);
      this.#fail(error);
    }
  }

  heard(answer: Answer | Renewal, sentAt: number): void {
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
        // Where the store keeps no queue (`promises.order: "none"`) whoever wants to wait has to ask again.
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
    if (this.#phase === "waiting") this.#client.renewal.hurry(this);
    if (this.#phase === "pausing") this.#end("again", false);
  }

  sign(): Sign {
    return this.claim;
  }

  /** Its timers only poll; the store's answers count. */
  look(): void {
    if (this.#phase === "waiting") this.#client.renewal.hurry(this);
  }

  async close(): Promise<void> {
    this.#exit.take("closed");
  }

  #queued(answer: Queued, sentAt: number): void {
    this.#lastToken = Math.max(this.#lastToken, answer.lastToken);
    this.#signAt = Math.max(this.#signAt, sentAt);
    this.holder = answer.holder ?? this.holder;
    if (this.#phase === "asking") {
      this.#phase = "waiting";
      this.#client.renewal.add(this, this.#signAt);
      const { name, id } = this.claim;
      const { holder } = this;
      this.#client.events.emit("queued", () => ({ name, id, ...(holder === undefined ? {} : { holder }) }));
    }
    // Whoever was told may have left.
    if (this.#phase !== "waiting") return;
    if (this.#woken) this.#client.renewal.hurry(this);
    this.#woken = false;
    if (answer.nextMs === null) return;
    // The first waiter looks when a blocking lease ends: nobody else would find out that its holder died.
    const polls = this.#client.engine.promises.wake === "poll";
    const pollMs = polls ? Math.min(answer.nextMs, POLL_MAX_MS) : answer.nextMs;
    this.#rouse(Math.max(RETRY_MIN_MS, pollMs), () => this.#client.renewal.hurry(this));
  }

  /** The hand-over left our waiter lease as it was: the deadline counts from the sign of life that is known to have set it. */
  #pushedGrant(fence: Fence): void {
    // A push that was under way while the store forgot us and queued us again (`pitfalls.md` 61).
    if (this.#phase === "pausing" || this.#phase === "done" || fence.token <= this.#lastToken) return;
    const leftMs = deadlineOf(this.#signAt, this.#waiterLeaseMs) - this.#client.clock.now();
    // The confirmation starts the lease proper: behind the caller's back where that is safe, otherwise before it goes on.
    const enough = leftMs >= Math.max(this.#waiterLeaseMs / 2, this.#terms.minRemainingMs);
    if (!this.#terms.renew || !enough) return this.#client.renewal.hurry(this);
    this.#granted(fence, this.#waiterLeaseMs, this.#signAt);
  }

  #granted(fence: Fence, leftMs: number, sentAt: number): void {
    // A slow answer may bring a grant that has ended or is too short to be of use (`pitfalls.md` 7).
    const tooShort = deadlineOf(sentAt, leftMs) - this.#client.clock.now() <= this.#terms.minRemainingMs;
    if (tooShort) {
      this.failure = new Error("the grant came with too little time left");
      return this.#again(true);
    }
    const grant = new Grant(this.#client, this.claim, this.#terms, fence, leftMs, sentAt, this.#settled);
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
    this.#client.renewal.remove(this);
    this.#phase = "pausing";
    this.#exit.onTaken = () => this.#end("left", false);
    // A moment later, each after its own: not all of them at the same time.
    const soonestMs = (nextMs ?? Infinity) + this.#client.retryDelayMs(1);
    this.#rouse(Math.min(this.#client.retryDelayMs(this.#round), soonestMs), () => this.#end("again", false));
  }

  /** Not by a client library that resends, nor, under an id of the caller's own, by a process that died. */
  #sentOnce(): boolean {
    return this.#sends === 1 && this.#terms.id === undefined && !this.#client.engine.resends;
  }

  #rouse(ms: number, run: () => void): void {
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
    this.#client.renewal.remove(this);
    this.#client.forget(this.claim.id, this);
    this.#exit.onTaken = () => {};
    if (withdraw) this.#withdraw();
    this.#resolve(outcome);
  }

  /** The request may still be on the wire. If it wins after we left, nobody else would give it back. */
  #withdraw(): void {
    this.#client.withdraw(this.claim, false, this.claim.leaseMs);
  }
}
