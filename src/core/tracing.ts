import { tracingChannel } from "node:diagnostics_channel";
import type { Clock } from "./clock.js";
import { type Deadlines, Moment } from "./deadlines.js";
import type { ClaimRequest } from "./engine.js";
import {
  ClosedError,
  DeadlockError,
  DrainingError,
  EngineUnavailableError,
  LockLostError,
  type LossReason,
  TooManyClaimsError,
  TooManyWaitersError,
} from "./errors.js";
import type { Owner } from "./inspect.js";
import { READERS_MAX } from "./limits.js";

/**
 * What a lock is used as: `read` and `write` are the sides of a read-write lock, `barrier` a party's claim on a meeting. Striped and
 * multiple locks are mutexes, one by one.
 */
export type LockKind = "mutex" | "read" | "write" | "semaphore" | "election" | "job" | "barrier";

/** How a call that asks for a lock ended. `busy`: told not to wait. `limited`: too many waited here. `failed`: refused for good, or another error. */
export type AcquireOutcome =
  | "granted"
  | "busy"
  | "timed-out"
  | "aborted"
  | "closed"
  | "unavailable"
  | "deadlock"
  | "limited"
  | "failed";

/** What all traces of one lock tell from their start. */
export type TracedLock = {
  readonly name: string;
  readonly kind: LockKind;
  readonly units: number;
  readonly capacity: number;
  /** The engine's `kind`: `redis`, `postgres`, ... */
  readonly engine: string;
  readonly owner: Owner;
};

/** `holdfast:acquire`, from the call to the grant. What is optional is set when it ends. */
export type AcquireTrace = TracedLock & {
  readonly outcome?: AcquireOutcome;
  readonly waitedMs?: number;
  /** Of the claim that was granted. */
  readonly id?: string;
  readonly token?: number;
  /** The id of the claim directly before it in the queue, where that is one of the same client. */
  readonly ahead?: string;
  readonly error?: unknown;
};

/** `holdfast:hold`, from the grant to the end. What is optional is set when it ends, except for `acquire`. */
export type HoldTrace = TracedLock & {
  readonly id: string;
  readonly token: number;
  /** The call that it came from: not for one that was adopted, nor while nobody subscribes to `holdfast:acquire`. */
  readonly acquire?: AcquireTrace;
  readonly outcome?: "released" | "handed-over" | "lost";
  readonly reason?: LossReason;
  /** Until it was given back or lost; the store's answer comes later. */
  readonly heldMs?: number;
  readonly error?: unknown;
};

/** `holdfast:release`, from the call to the store's answer. */
export type ReleaseTrace = TracedLock & {
  readonly id: string;
  readonly token: number;
  readonly outcome?: "released" | "lost" | "unavailable";
  readonly error?: unknown;
};

/** `holdfast:renew`: one call with the heartbeats of many claims. */
export type RenewTrace = {
  readonly engine: string;
  readonly owner: Owner;
  /** How many heartbeats the call carries. */
  readonly claims: number;
  readonly outcome?: "answered" | "unavailable";
  readonly tookMs?: number;
  readonly error?: unknown;
};

type TracedClaim = TracedLock & { readonly id: string; readonly token: number };

type Writable<T> = { -readonly [Key in keyof T]: T[Key] };

/** What the trace of a call needs of its client. */
type Limited = { readonly settings: { readonly callTimeoutMs: number }; readonly deadlines: Deadlines };

/** What a trace needs of the client whose lock it is. */
export interface Traced {
  readonly engine: { readonly kind: string };
  readonly owner: Owner;
  readonly clock: Clock;
}

const ACQUIRE = tracingChannel<unknown, object>("holdfast:acquire");
const HOLD = tracingChannel<unknown, object>("holdfast:hold");
const RELEASE = tracingChannel<unknown, object>("holdfast:release");
const RENEW = tracingChannel<unknown, object>("holdfast:renew");

/** Whether anybody subscribes: most programs have nobody who does, and then nothing is built. */
export const wantsAcquires = (): boolean => ACQUIRE.hasSubscribers || HOLD.hasSubscribers;
export const wantsHolds = (): boolean => HOLD.hasSubscribers;
export const wantsReleases = (): boolean => RELEASE.hasSubscribers;
export const wantsRenewals = (): boolean => RENEW.hasSubscribers;

type Asked = Pick<TracedLock, "name" | "units" | "capacity">;

/** Written field by field: copying objects into each other would be most of what a trace costs. */
function tracedLock({ engine, owner }: Traced, asked: Asked, kind: LockKind | undefined): TracedLock {
  const { name, units, capacity } = asked;
  return { name, kind: kind ?? kindOf(units, capacity), units, capacity, engine: engine.kind, owner };
}

function tracedClaim({ client, claim, token }: TracedGrant, kind: LockKind | undefined): TracedClaim {
  const trace = tracedLock(client, claim, kind) as Writable<TracedClaim>;
  trace.id = claim.id;
  trace.token = token;
  return trace;
}

function kindOf(units: number, capacity: number): LockKind {
  if (capacity === READERS_MAX) return units === READERS_MAX ? "write" : "read";
  return capacity === 1 ? "mutex" : "semaphore";
}

/** Node.js keeps a subscriber's mistake away from here: it becomes an uncaught exception in a turn of its own. */
function publishEnd(channel: typeof ACQUIRE, trace: object): void {
  if ("error" in trace) channel.error.publish(trace);
  channel.asyncStart.publish(trace);
  channel.asyncEnd.publish(trace);
}

/** One call that asks for a lock. */
export class AcquireTracing {
  readonly trace: Writable<AcquireTrace>;
  readonly #client: Traced;
  readonly #startedAt: number;

  constructor(client: Traced, asked: Asked & { readonly kind?: LockKind }) {
    this.trace = tracedLock(client, asked, asked.kind);
    this.#client = client;
    this.#startedAt = client.clock.now();
  }

  /** Stores that a subscriber bound to the start stand while `start` runs: a client library's own spans belong to this one. */
  run<T>(start: () => T): T {
    try {
      return ACQUIRE.start.runStores(this.trace, start);
    } finally {
      ACQUIRE.end.publish(this.trace);
    }
  }

  granted(id: string, token: number, ahead: string | undefined): void {
    this.trace.id = id;
    this.trace.token = token;
    if (ahead !== undefined) this.trace.ahead = ahead;
    this.ended("granted");
  }

  failed(error: unknown, signal: AbortSignal | undefined): void {
    this.trace.error = error;
    this.ended(outcomeOf(error, signal));
  }

  ended(outcome: AcquireOutcome): void {
    this.trace.outcome = outcome;
    this.trace.waitedMs = this.#client.clock.now() - this.#startedAt;
    publishEnd(ACQUIRE, this.trace);
  }
}

function outcomeOf(error: unknown, signal: AbortSignal | undefined): AcquireOutcome {
  // Found by aborting the wait with it.
  if (error instanceof DeadlockError) return "deadlock";
  if (signal?.aborted && signal.reason === error) return "aborted";
  if (error instanceof EngineUnavailableError) return "unavailable";
  if (error instanceof TooManyWaitersError || error instanceof TooManyClaimsError) return "limited";
  return error instanceof ClosedError || error instanceof DrainingError ? "closed" : "failed";
}

/** What is traced of a claim after the store's yes. */
type TracedGrant = {
  readonly client: Traced;
  readonly claim: ClaimRequest;
  readonly token: number;
  trace: HoldTracing | null;
};

/** One hold. */
export class HoldTracing {
  readonly #trace: Writable<HoldTrace>;

  private constructor(trace: HoldTrace) {
    this.#trace = trace;
  }

  /** From now on, until `ended` is called. */
  static start(grant: TracedGrant, kind: LockKind | undefined, acquire: AcquireTrace | undefined): void {
    const trace: Writable<HoldTrace> = tracedClaim(grant, kind);
    if (acquire !== undefined) trace.acquire = acquire;
    grant.trace = new HoldTracing(trace);
    HOLD.start.publish(trace);
    HOLD.end.publish(trace);
  }

  get kind(): LockKind {
    return this.#trace.kind;
  }

  ended(outcome: "released" | "handed-over" | LockLostError, heldMs: number): void {
    const trace = this.#trace;
    if (trace.outcome !== undefined) return;
    trace.heldMs = heldMs;
    trace.outcome = outcome instanceof LockLostError ? "lost" : outcome;
    if (outcome instanceof LockLostError) {
      trace.reason = outcome.reason;
      trace.error = outcome;
    }
    publishEnd(HOLD, trace);
  }
}

/** The answer is passed on as it is. */
export async function traceRelease(grant: TracedGrant, release: () => Promise<void>): Promise<void> {
  const trace: Writable<ReleaseTrace> = tracedClaim(grant, grant.trace?.kind);
  const releasing = RELEASE.start.runStores(trace, release);
  RELEASE.end.publish(trace);
  try {
    await releasing;
    trace.outcome = "released";
  } catch (error) {
    trace.error = error;
    trace.outcome = error instanceof LockLostError ? "lost" : "unavailable";
    throw error;
  } finally {
    publishEnd(RELEASE, trace);
  }
}

export function traceRenew<T>(client: Traced & Limited, claims: number, renew: () => Promise<T>): Promise<T> {
  const trace: Writable<RenewTrace> = { engine: client.engine.kind, owner: client.owner, claims };
  const startedAt = client.clock.now();
  const renewing = RENEW.start.runStores(trace, renew);
  RENEW.end.publish(trace);
  const limit = new Moment();
  const end = (outcome: NonNullable<RenewTrace["outcome"]>): void => {
    if (trace.outcome !== undefined) return;
    client.deadlines.clear(limit);
    trace.outcome = outcome;
    trace.tookMs = client.clock.now() - startedAt;
    publishEnd(RENEW, trace);
  };
  const fail = (error: unknown): void => {
    trace.error ??= error;
    end("unavailable");
  };
  // The loop waits longer for an answer; who watches is told when the time limit is over.
  const { callTimeoutMs } = client.settings;
  const due = (): void => fail(new Error(`no answer within ${callTimeoutMs} ms`));
  client.deadlines.set(
    limit,
    { due, stopped: () => fail(new ClosedError("renewing")) },
    startedAt + callTimeoutMs,
    startedAt,
  );
  renewing.then(() => end("answered"), fail);
  return renewing;
}
