import type { Client } from "./client.js";
import type { Timer } from "./clock.js";
import type { Answer, Claim, EngineEvent, Fence, Queued, Renewal, Sign } from "./engine.js";
import { CapacityMismatchError, ClaimEndedError, ClosedError, EngineUnavailableError } from "./errors.js";
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
};

/** It was not our turn in time. */
export class Blocked {
  constructor(
    readonly holder: Owner | undefined,
    readonly waitedMs: number,
  ) {}
}

/**
 * The only wait loop: ask until granted, until told that it is not our turn (`waitMs: 0`), or until the caller leaves.
 * Each round is a new claim with a new id: an id that ended is never used again.
 */
export async function take(client: Client, ask: Ask, terms: Terms): Promise<Grant | Blocked> {
  client.assertOpen(`acquiring "${ask.name}"`);
  terms.signal?.throwIfAborted();
  if (terms.id !== undefined && client.expects(terms.id)) throw new ClaimEndedError(ask.name, terms.id);
  const startedAt = client.clock.now();
  const exit = new Exit(client, terms);
  try {
    for (let round = 1; ; round += 1) {
      if (client.closed) exit.take("closed");
      const attempt = new Attempt(client, ask, terms, exit, round);
      const outcome = await attempt.run();
      const waitedMs = client.clock.now() - startedAt;
      if (outcome instanceof Grant) {
        const { name, id } = outcome.claim;
        client.events.emit("granted", () => ({ name, id, token: outcome.token, waitedMs }));
        return outcome;
      }
      if (outcome === "busy") return new Blocked(attempt.holder, 0);
      if (outcome === "left") return exit.leave(attempt, waitedMs);
    }
  } finally {
    exit.dispose();
  }
}

/** Why a caller leaves before the grant: its time is up, its signal aborted, the client closed. */
class Exit {
  readonly #client: Client;
  readonly #terms: Terms;
  readonly #timer: Timer | null;
  readonly #aborted = (): void => this.take("aborted");
  #reason: "timeout" | "aborted" | "closed" | null = null;
  /** The attempt under way. */
  onTaken: () => void = () => {};

  constructor(client: Client, terms: Terms) {
    this.#client = client;
    this.#terms = terms;
    const { waitMs, signal } = terms;
    // Told not to wait, it still has to wait for the answer: that call has its own limit.
    const limited = waitMs !== undefined && waitMs > 0;
    this.#timer = limited ? client.clock.after(waitMs, () => this.take("timeout")) : null;
    signal?.addEventListener("abort", this.#aborted);
  }

  get taken(): boolean {
    return this.#reason !== null;
  }

  take(reason: "timeout" | "aborted" | "closed"): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.onTaken();
  }

  /** What the caller gets: a value when it was simply not its turn, otherwise an error. */
  leave(attempt: Attempt, waitedMs: number): Blocked {
    const { name } = attempt.claim;
    if (this.#reason === "aborted") throw this.#terms.signal?.reason;
    if (this.#reason === "closed") throw new ClosedError(`waiting for "${name}"`);
    if (attempt.failure === null) return new Blocked(attempt.holder, waitedMs);
    throw new EngineUnavailableError(this.#client.engine.kind, `acquiring "${name}"`, attempt.failure);
  }

  dispose(): void {
    if (this.#timer !== null) this.#client.clock.cancel(this.#timer);
    this.#terms.signal?.removeEventListener("abort", this.#aborted);
  }
}

/** `again`: this claim has ended, ask with a new one. */
type Outcome = Grant | "busy" | "left" | "again";

/** One claim, from its first sending to its grant or its end. */
class Attempt extends Living {
  readonly claim: Claim;
  readonly everyMs: number;
  holder: Owner | undefined;
  /** Why the store's last word is not known; null when it is. */
  failure: unknown = "no answer yet";
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
  #timer: Timer | null = null;
  #resolve: (outcome: Outcome) => void = () => {};
  #reject: (error: unknown) => void = () => {};

  constructor(client: Client, ask: Ask, terms: Terms, exit: Exit, round: number) {
    super();
    const { leaseMs, label, exact } = terms;
    this.claim = {
      name: ask.name,
      id: terms.id ?? client.chance.id(),
      units: ask.units,
      capacity: ask.capacity,
      leaseMs,
      wait: terms.waitMs !== 0,
      owner: label === undefined ? client.owner : { ...client.owner, label },
      ...(exact ? { exact } : {}),
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
    const { engine, clock } = this.#client;
    const call = async (): Promise<Answer> => {
      this.#sends += 1;
      try {
        return await engine.claim(this.claim);
      } catch (cause) {
        this.failure = cause;
        throw cause;
      }
    };
    const until = this.claim.wait ? Infinity : clock.now();
    const unwanted = (): boolean => this.#phase !== "asking";
    try {
      const { answer, sentAt } = await this.#client.insist(`acquiring "${this.claim.name}"`, call, until, unwanted);
      this.#settled = this.#sends === 1;
      // A store need not take a claim sent again as a sign of life: a place in the queue counts from the first sending.
      this.heard(answer, answer.kind === "queued" ? this.#signAt : sentAt);
    } catch (error) {
      // A refusal is an answer too; what was lost is not.
      this.#settled = this.#sends === 1 && !(error instanceof EngineUnavailableError);
      this.#fail(error);
    }
  }

  heard(answer: Answer | Renewal, sentAt: number): void {
    if (this.#phase === "pausing" || this.#phase === "done") return;
    this.failure = answer.kind === "unknown" ? answer.cause : null;
    switch (answer.kind) {
      case "unknown":
        return;
      case "queued":
        return this.#queued(answer, sentAt);
      case "granted":
        this.#granted(answer, Math.min(answer.leftMs, this.claim.leaseMs), sentAt);
        return;
      case "busy":
        this.holder = answer.holder;
        // Where the store keeps no queue (`promises.order: "none"`) whoever wants to wait has to ask again.
        return this.claim.wait ? this.#again(!this.#settled) : this.#end("busy", !this.#settled);
      case "gone":
        return this.#again(true);
      case "mismatch":
        return this.#fail(new CapacityMismatchError(this.claim.name, this.claim.capacity, answer.capacity));
    }
  }

  pushed(event: EngineEvent): void {
    if (event.kind === "granted") return this.#pushedGrant(event);
    if (event.kind === "wake" && event.name !== undefined && event.name !== this.claim.name) return;
    if (this.#phase === "waiting") this.#client.renewal.hurry(this);
    if (this.#phase === "pausing") this.#end("again", false);
  }

  sign(): Sign {
    return this.claim;
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
      this.#client.renewal.add(this);
      const { name, id } = this.claim;
      const { holder } = this;
      this.#client.events.emit("queued", () => ({ name, id, ...(holder === undefined ? {} : { holder }) }));
    }
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
    const grant = this.#granted(fence, this.#waiterLeaseMs, this.#signAt);
    if (grant) this.#client.renewal.hurry(grant);
  }

  #granted(fence: Fence, leftMs: number, sentAt: number): Grant | undefined {
    // A slow answer may bring a grant that has ended or is too short to be of use (`pitfalls.md` 7).
    const tooShort = deadlineOf(sentAt, leftMs) - this.#client.clock.now() <= this.#terms.minRemainingMs;
    if (tooShort) {
      this.failure = new Error("the grant came with too little time left");
      this.#again(true);
      return undefined;
    }
    const grant = new Grant(this.#client, this.claim, this.#terms, fence, leftMs, sentAt, this.#settled);
    this.#end(grant, false);
    return grant;
  }

  /** Ask anew after a pause; leaving and a wake end it early. */
  #again(withdraw: boolean): void {
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
    this.#rouse(this.#client.retryDelayMs(this.#round), () => this.#end("again", false));
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
