/** Every bound of the core in one place: what a user may ask for, and what the loops allow themselves. */

/** The capacity of a read-write lock: a reader takes one unit, a writer all. Reserved: semaphores stay below. */
export const READERS_MAX = 1_048_576;

export const NAME_MAX_BYTES = 512;
export const LABEL_MAX_BYTES = 256;
export const LEASE_MIN_MS = 100;
export const LEASE_MAX_MS = 24 * 60 * 60 * 1000;
/** What a Node timer can count. */
export const TIMER_MAX_MS = 2 ** 31 - 1;
/** Half of the safe integers for the base, half for the store's own numbers. */
export const TOKEN_BASE_MAX = 2 ** 52;
/** How many tokens a burst may keep for itself: they are times, and must not run ahead of the clock by much. */
export const BURST_HOLDS_MAX = 1_000;
/** The exact fence lists every live token in each grant. */
export const EXACT_CAPACITY_MAX = 64;

/** Of one client at one name, unless said otherwise: about 20 MB, and a heartbeat each every third of a waiter's lease. */
export const WAITERS_DEFAULT = 10_000;
/** Claims and holds of one client, unless said otherwise. */
export const CLAIMS_DEFAULT = 200_000;
/** The most that can be said. */
export const CLAIMS_MAX = 10_000_000;

export const LEASE_DEFAULT_MS = 10_000;
/** How long a program's thread may stand still before another one renews for it no more. */
export const STALL_DEFAULT_MS = 10_000;
/** How long holders may take to finish when a client drains. */
export const GRACE_DEFAULT_MS = 10_000;
/** How long one call to the store may take before it counts as unanswered and is sent again. */
export const CALL_TIMEOUT_DEFAULT_MS = 5_000;

/** How long, at least, the tombstone of a release, or the record of a cell's operation keeps late copies harmless. */
export const TOMBSTONE_MS = 60_000;
/** A waiting claim's heartbeat; short, so that a dead waiter does not block the queue for a long lease. */
const WAITER_LEASE_MAX_MS = 10_000;
/** Without pushes the first waiter asks at least this often. */
export const POLL_MAX_MS = 2_000;
/** However short a lease: no more heartbeats than this (`pitfalls.md` 11). */
const RENEW_FLOOR_MS = 25;
/** Every retry waits at least this long, plus chance (`pitfalls.md` 20). */
export const RETRY_MIN_MS = 25;
export const RETRY_MAX_MS = 1_000;

export function waiterLeaseMs(leaseMs: number): number {
  return Math.min(leaseMs, WAITER_LEASE_MAX_MS);
}

/** A third of the lease: one renewal may be lost and the next may be slow before the holder must stop. */
export function renewEveryMs(leaseMs: number): number {
  return Math.max(RENEW_FLOOR_MS, Math.floor(leaseMs / 3));
}

/**
 * When a holder must stop: counted from the *sending* of the request, because the store's answer was computed after
 * that, less a margin for clocks that run at different speeds and for the time it takes to stop (`pitfalls.md` 2, 64).
 */
export function deadlineOf(sentAt: number, leftMs: number): number {
  return sentAt + leftMs - (leftMs * 0.01 + 5);
}
