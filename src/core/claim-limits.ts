import { type HoldfastError, TooManyClaimsError, TooManyWaitersError } from "./errors.js";
import type { Events } from "./events.js";

/** Those who are refused say so together: a client that is flooded must not flood its log as well. */
const TELL_EVERY_MS = 1_000;

/** What it needs of the client. */
type Limited = {
  readonly settings: { readonly maxWaiters: number; readonly maxClaims: number };
  readonly clock: { now(): number };
  readonly events: Events;
  /** Claims under way and holds. */
  readonly claims: number;
  /** Of those, the names of the ones that wait. */
  waitingNames(): Iterable<string>;
};

/** Bounds on what callers may ask of one client. Whoever is beyond is refused at once, before the store is asked. */
export class ClaimLimits {
  readonly #client: Limited;
  /**
   * How many wait, by name. Null while there are so few claims that no name can have too many: most clients never come near,
   * and pay nothing for it.
   */
  #waiters: Map<string, number> | null = null;
  /** Since it was told last. */
  #refused = 0;
  #toldAt = -Infinity;

  constructor(client: Limited) {
    this.#client = client;
  }

  assertRoom(name: string, waits: boolean): void {
    const { claims } = this.#client;
    const { maxWaiters, maxClaims } = this.#client.settings;
    if (claims >= maxClaims) throw this.#refusal(new TooManyClaimsError(name, maxClaims));
    if (!waits) return;
    if (claims < maxWaiters) {
      // Not as soon as it falls below: around the limit it would be counted anew again and again.
      if (claims < maxWaiters / 2) this.#waiters = null;
      return;
    }
    this.#waiters ??= countOf(this.#client.waitingNames());
    this.assertFew(name, this.#waiters.get(name) ?? 0);
  }

  /** For those who wait here alone, and are no claims. */
  assertFew(name: string, waiters: number): void {
    const { maxWaiters } = this.#client.settings;
    if (waiters >= maxWaiters) throw this.#refusal(new TooManyWaitersError(name, maxWaiters));
  }

  /** A claim that waits has been added to the client's. */
  entered(name: string): void {
    if (this.#waiters !== null) this.#waiters.set(name, (this.#waiters.get(name) ?? 0) + 1);
  }

  /** It waits no more. */
  left(name: string): void {
    if (this.#waiters === null) return;
    const count = (this.#waiters.get(name) ?? 0) - 1;
    if (count > 0) this.#waiters.set(name, count);
    else this.#waiters.delete(name);
  }

  #refusal<E extends HoldfastError & { readonly lock: string; readonly limit: number }>(error: E): E {
    this.#refused += 1;
    const now = this.#client.clock.now();
    if (now - this.#toldAt < TELL_EVERY_MS) return error;
    const { lock: name, limit } = error;
    const [refused, option] = [
      this.#refused,
      error instanceof TooManyWaitersError ? "maxWaiters" : "maxClaims",
    ] as const;
    this.#refused = 0;
    this.#toldAt = now;
    this.#client.events.emit("limited", () => ({ name, option, limit, refused }));
    return error;
  }
}

function countOf(names: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
