import { checkDetection, checkKnown, checkLabel, checkLease, checkNumber, ID_ALLOWED, shown } from "./checks.js";
import { InvalidOptionError } from "./errors.js";
import type { Hold } from "./hold.js";
import { deadlineOf, TIMER_MAX_MS } from "./limits.js";
import type { LockKind } from "./tracing.js";

/** What a recipe asks for: `units` of `capacity` under `name`. */
export type Ask = {
  readonly name: string;
  readonly units: number;
  readonly capacity: number;
  /** Small; shown by `inspect` for as long as the claim lives. */
  readonly data?: string;
  readonly leaseOnly?: boolean;
  /** Tokens above the claim's own that are kept for it. */
  readonly reserve?: number;
  /** What it is for, where numbers do not say it. */
  readonly kind?: LockKind;
  /** A part of what is traced by itself. */
  readonly untraced?: true;
};

/** How to take a lock. All durations are milliseconds. */
export interface AcquireOptions {
  /** How long to wait for the lock; 0: not at all. Without it `acquire` waits without limit. */
  readonly waitMs?: number;
  /** How long the store waits for a heartbeat before the lock passes on; 10 s unless said otherwise. */
  readonly leaseMs?: number;
  /** `false`: a fixed lease. It is not renewed and ends after `leaseMs`, unless `extend()` is called. */
  readonly renew?: boolean;
  /** After this time the hold is renewed no more: a program that hangs does not keep the lock for ever. */
  readonly maxHoldMs?: number;
  /** A grant with less time left than this is given back and asked for again. */
  readonly minRemainingMs?: number;
  /** Aborting it ends the wait; the call rejects with its reason. It does not end a hold. */
  readonly signal?: AbortSignal;
  /** Shown to others in errors, events and `inspect`. */
  readonly label?: string;
  /** The claim's identity, for programs that write it down before they ask. At least 128 random bits; never used twice. */
  readonly id?: string;
  /**
   * Take the lock again inside this hold of it: counted, no round trip, the same token. The outer hold's lease, limits and
   * label stay as they are, as they do when a callback takes its own lock again.
   */
  readonly within?: Hold;
  /** `"exact"`: the grant lists all live tokens (`hold.live`), for semaphores of at most 64. */
  readonly fence?: "floor" | "exact";
  /**
   * A wait that lasts longer than this looks for a deadlock among the programs that give this option, and, when it was the
   * last to come, ends with a `DeadlockError`. What counts as held is what `using` holds around the call.
   */
  readonly detectDeadlockAfterMs?: number;
}

/** `AcquireOptions` after the check, with the client's defaults in place. */
export type Terms = {
  readonly waitMs: number | undefined;
  readonly leaseMs: number;
  readonly renew: boolean;
  readonly maxHoldMs: number | undefined;
  readonly minRemainingMs: number;
  readonly signal: AbortSignal | undefined;
  readonly label: string | undefined;
  readonly id: string | undefined;
  readonly within: Hold | undefined;
  readonly exact: boolean;
  readonly detectDeadlockAfterMs: number | undefined;
};

const ACQUIRE_OPTIONS: readonly string[] = [
  "waitMs",
  "leaseMs",
  "renew",
  "maxHoldMs",
  "minRemainingMs",
  "signal",
  "label",
  "id",
  "within",
  "fence",
  "detectDeadlockAfterMs",
] satisfies (keyof AcquireOptions)[];

export type TermDefaults = {
  readonly leaseMs: number;
  readonly waitMs: number | undefined;
  readonly detectDeadlockAfterMs?: number | undefined;
};

export function checkTerms(options: AcquireOptions, defaults: TermDefaults): Terms {
  checkKnown(options, ACQUIRE_OPTIONS);
  const { renew = true, minRemainingMs = 0 } = options;
  const leaseMs = checkLease(options.leaseMs === undefined ? defaults.leaseMs : options.leaseMs);
  if (typeof renew !== "boolean") throw new InvalidOptionError("renew", shown(renew), "true or false");
  const { waitMs = defaults.waitMs, maxHoldMs, signal, id, fence } = options;
  const { detectDeadlockAfterMs = defaults.detectDeadlockAfterMs } = options;
  checkDetection(detectDeadlockAfterMs);
  if (waitMs !== undefined) checkNumber("waitMs", waitMs, 0, TIMER_MAX_MS, "milliseconds");
  if (maxHoldMs !== undefined) {
    checkNumber("maxHoldMs", maxHoldMs, 1, TIMER_MAX_MS, "milliseconds");
    if (!renew) throw new InvalidOptionError("maxHoldMs", "it limits renewal, and renew is false", "one of the two");
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new InvalidOptionError("signal", shown(signal), "an AbortSignal");
  }
  if (id !== undefined && (typeof id !== "string" || !ID_ALLOWED.test(id))) {
    throw new InvalidOptionError(
      "id",
      shown(id),
      "22 to 64 of A-Z, a-z, 0-9, _ and -, at least 128 bits of them random",
    );
  }
  if (fence !== undefined && fence !== "floor" && fence !== "exact") {
    throw new InvalidOptionError("fence", shown(fence), '"floor" or "exact"');
  }
  return {
    waitMs,
    leaseMs,
    renew,
    maxHoldMs,
    minRemainingMs: checkNumber(
      "minRemainingMs",
      minRemainingMs,
      0,
      Math.floor(deadlineOf(0, leaseMs)) - 1,
      "milliseconds, below the lease",
    ),
    signal,
    label: checkLabel(options.label),
    id,
    within: options.within,
    exact: fence === "exact",
    detectDeadlockAfterMs,
  };
}
