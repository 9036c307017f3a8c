import { type Owner, ownerText } from "./inspect.js";
import { LOSS_TEXT, type LossReason } from "./loss-reason.js";

export type { LossReason };

/**
 * Every error of the library: a class each, a stable code, the facts as fields, the cause, always a fresh instance.
 * `docs/reference/errors.md` lists them; a test compares the two.
 */
const BRAND = Symbol.for("holdfast.error");

/**
 * What all errors of Holdfast have in common.
 *
 * `instanceof` goes by code, not by identity of the class, so that it also holds between two copies of the package in
 * one program.
 */
export abstract class HoldfastError extends Error {
  static readonly code: string = "HOLDFAST";
  abstract readonly code: string;
  readonly [BRAND] = true;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }

  static override [Symbol.hasInstance](value: unknown): boolean {
    if (typeof value !== "object" || value === null || !(BRAND in value)) return false;
    return this.code === HoldfastError.code || (value as HoldfastError).code === this.code;
  }
}

export class InvalidNameError extends HoldfastError {
  static override readonly code = "HOLDFAST_INVALID_NAME";
  readonly code = InvalidNameError.code;

  constructor(
    readonly problem: string,
    readonly allowed: string,
  ) {
    super(`Invalid name: ${problem}. Allowed: ${allowed}.`);
  }
}

export class InvalidOptionError extends HoldfastError {
  static override readonly code = "HOLDFAST_INVALID_OPTION";
  readonly code = InvalidOptionError.code;

  constructor(
    readonly option: string,
    readonly problem: string,
    readonly allowed: string,
  ) {
    super(`Invalid option "${option}": ${problem}. Allowed: ${allowed}.`);
  }
}

/** The call does not fit the state of what it was made on. */
export class MisuseError extends HoldfastError {
  static override readonly code = "HOLDFAST_MISUSE";
  readonly code = MisuseError.code;
}

export class ClosedError extends HoldfastError {
  static override readonly code = "HOLDFAST_CLOSED";
  readonly code = ClosedError.code;

  constructor(what: string) {
    super(`${what}: these locks were closed. Connect again to go on.`);
  }
}

/** The locks take nothing new and close soon: `locks.drain()` was called. */
export class DrainingError extends HoldfastError {
  static override readonly code = "HOLDFAST_DRAINING";
  readonly code = DrainingError.code;

  constructor(what: string) {
    super(
      `${what}: these locks are draining. They take nothing new and close soon; leave the work to another program.`,
    );
  }
}

/** Nobody answered "yes" in time. Nothing is held. */
export class AcquireTimeoutError extends HoldfastError {
  static override readonly code = "HOLDFAST_ACQUIRE_TIMEOUT";
  readonly code = AcquireTimeoutError.code;

  constructor(
    readonly lock: string,
    readonly waitedMs: number,
    /** Who held it when the store was asked, where the store says so. */
    readonly holder: Owner | undefined,
    cause?: unknown,
  ) {
    const who = holder === undefined ? "" : `, held by ${ownerText(holder)}`;
    super(
      waitedMs > 0
        ? `"${lock}" was not free within ${Math.round(waitedMs)} ms${who}. Wait longer (waitMs), or use tryAcquire and do without.`
        : `"${lock}" is busy${who}. Give waitMs to wait for it.`,
      cause === undefined ? undefined : { cause },
    );
  }
}

/** So many callers of this client wait for the lock already. Nothing was asked of the store. */
export class TooManyWaitersError extends HoldfastError {
  static override readonly code = "HOLDFAST_TOO_MANY_WAITERS";
  readonly code = TooManyWaitersError.code;

  constructor(
    readonly lock: string,
    readonly limit: number,
  ) {
    super(`"${lock}" has ${limit} waiters in this program, as many as maxWaiters allows. Ask later, or do without it.`);
  }
}

/** This client has so many claims and holds already. Nothing was asked of the store. */
export class TooManyClaimsError extends HoldfastError {
  static override readonly code = "HOLDFAST_TOO_MANY_CLAIMS";
  readonly code = TooManyClaimsError.code;

  constructor(
    readonly lock: string,
    readonly limit: number,
  ) {
    super(
      `"${lock}" was not asked for: this program has ${limit} claims and holds (maxClaims). Ask later, or do without it.`,
    );
  }
}

/** The store did not answer. What was asked may or may not have happened; what could have been taken is withdrawn. */
export class EngineUnavailableError extends HoldfastError {
  static override readonly code = "HOLDFAST_ENGINE_UNAVAILABLE";
  readonly code = EngineUnavailableError.code;

  constructor(
    readonly engine: string,
    readonly doing: string,
    cause: unknown,
  ) {
    super(`${engine} did not answer while ${doing}: ${reasonText(cause)}. Check that the store can be reached.`, {
      cause,
    });
  }
}

/** The store answered that it will not do this, whoever asks again: rights, a foreign layout, a server that is too old. */
export class EngineRefusedError extends HoldfastError {
  static override readonly code = "HOLDFAST_ENGINE_REFUSED";
  readonly code = EngineRefusedError.code;

  constructor(
    readonly engine: string,
    readonly advice: string,
    cause: unknown,
  ) {
    super(`${engine} refused: ${reasonText(cause)}. ${advice}`, { cause });
  }
}

/** The lock may be somebody else's by now. Stop writing; the resource should refuse this token once it saw a newer one. */
export class LockLostError extends HoldfastError {
  static override readonly code = "HOLDFAST_LOCK_LOST";
  readonly code = LockLostError.code;

  constructor(
    readonly lock: string,
    readonly token: number,
    readonly reason: LossReason,
  ) {
    super(`"${lock}" (token ${token}) was lost: ${LOSS_TEXT[reason]}. Stop work that needs it and acquire it anew.`);
  }
}

/** The hold was used after it was given back. */
export class NotHeldError extends HoldfastError {
  static override readonly code = "HOLDFAST_NOT_HELD";
  readonly code = NotHeldError.code;

  constructor(
    readonly lock: string,
    readonly token: number,
  ) {
    super(`"${lock}" (token ${token}) is not held any more: it was released or handed over. Acquire it anew.`);
  }
}

/** A claim id given by the caller has come to its end; an id is never used twice. */
export class ClaimEndedError extends HoldfastError {
  static override readonly code = "HOLDFAST_CLAIM_ENDED";
  readonly code = ClaimEndedError.code;

  constructor(
    readonly lock: string,
    readonly id: string,
  ) {
    super(`Claim ${id} on "${lock}" has ended and nothing is held by it. Acquire the lock anew, with a new id.`);
  }
}

export class CapacityMismatchError extends HoldfastError {
  static override readonly code = "HOLDFAST_CAPACITY_MISMATCH";
  readonly code = CapacityMismatchError.code;

  constructor(
    readonly lock: string,
    readonly asked: number,
    readonly actual: number,
  ) {
    super(
      `"${lock}" is in use with capacity ${actual}, not ${asked}. All programs must agree on what a name is; ` +
        "change a semaphore's capacity with resize(), or use another name.",
    );
  }
}

export class UpgradeDeadlockError extends HoldfastError {
  static override readonly code = "HOLDFAST_UPGRADE_DEADLOCK";
  readonly code = UpgradeDeadlockError.code;

  constructor(readonly lock: string) {
    super(
      `"${lock}" is held for reading here and cannot be taken for writing: two readers doing this would wait for each ` +
        "other for ever. Release the read lock first, or take the write lock from the start and downgrade() it.",
    );
  }
}

export class UnsupportedError extends HoldfastError {
  static override readonly code = "HOLDFAST_UNSUPPORTED";
  readonly code = UnsupportedError.code;

  constructor(
    readonly engine: string,
    readonly missing: string,
    readonly advice: string,
  ) {
    super(`${engine} cannot do this: ${missing}. ${advice}`);
  }
}

/** What was waited for did not come in time. Nothing is held. */
export class WaitTimeoutError extends HoldfastError {
  static override readonly code = "HOLDFAST_WAIT_TIMEOUT";
  readonly code = WaitTimeoutError.code;

  constructor(
    readonly what: string,
    readonly waitedMs: number,
    /** How things stood at the end, in words. */
    readonly standing: string,
    /** Who was still waited for, where that is known. */
    readonly missing: readonly Owner[] = [],
  ) {
    super(`"${what}" was waited for ${Math.round(waitedMs)} ms: ${standing}. Wait longer (waitMs), or do without.`);
  }
}

/** A write may or may not have counted: its answer was lost, and the store was not reached again in time. */
export class OutcomeUnknownError extends HoldfastError {
  static override readonly code = "HOLDFAST_OUTCOME_UNKNOWN";
  readonly code = OutcomeUnknownError.code;

  constructor(
    readonly what: string,
    cause: unknown,
  ) {
    super(`Nobody knows whether "${what}" was changed: ${reasonText(cause)}. Read it before you change it again.`, {
      cause,
    });
  }
}

/** One flow of control of a deadlock: what it holds that the one before it waits for, and what it waits for itself. */
export type DeadlockLink = { readonly owner: Owner; readonly holds: readonly string[]; readonly waitsFor: string };

/** Several programs each wait for what the next one holds. This wait, the latest of them, gave up so that the others go on. */
export class DeadlockError extends HoldfastError {
  static override readonly code = "HOLDFAST_DEADLOCK";
  readonly code = DeadlockError.code;

  constructor(
    readonly lock: string,
    readonly cycle: readonly DeadlockLink[],
  ) {
    const links = cycle.map(
      ({ owner, holds, waitsFor }) => `${ownerText(owner)} holds ${holds.join(" and ")}, waits for ${waitsFor}`,
    );
    super(
      `"${lock}" is part of a deadlock: ${links.join("; ")}. This wait came last and gave up. Release what you hold and ` +
        "start again; take locks in one order everywhere, or all at once with locks.all().",
    );
  }
}

/** The resource has seen a newer floor: this token's lock has passed on. Nothing was written. */
export class StaleTokenError extends HoldfastError {
  static override readonly code = "HOLDFAST_STALE_TOKEN";
  readonly code = StaleTokenError.code;

  constructor(
    readonly resource: string,
    readonly token: number,
    /** The lowest token still accepted, where the resource says so. */
    readonly fence?: number,
  ) {
    const seen = fence === undefined ? "it has seen a newer one, or is not there" : `it accepts ${fence} and newer`;
    super(
      `"${resource}" refused token ${token}: ${seen}. Roll back, stop work that needs the lock, and acquire it anew.`,
    );
  }
}

/** What was shown to a resource can be no token. Nothing was written. */
export class InvalidTokenError extends HoldfastError {
  static override readonly code = "HOLDFAST_INVALID_TOKEN";
  readonly code = InvalidTokenError.code;

  constructor(
    /** `token`, `floor` or `live`. */
    readonly part: string,
    readonly problem: string,
    readonly allowed: string,
  ) {
    super(`Invalid ${part}: ${problem}. Allowed: ${allowed}.`);
  }
}

/** A definite no: the store did nothing, and asking again is of no use. Everything else that a call throws is unknown. */
export function isRefusal(cause: unknown): cause is HoldfastError {
  return cause instanceof HoldfastError && !(cause instanceof EngineUnavailableError);
}

/**
 * What an engine may throw when nothing of a call left this process: the store has not heard of it, and never will. Asking
 * again may help. One of these can be thrown many times, so that calls to a store that is away cost little.
 */
export class NotSentError extends Error {
  override readonly name = "NotSentError";
}

function reasonText(cause: unknown): string {
  return cause instanceof Error ? cause.message.replace(/\.$/, "") : String(cause);
}
