import type { ClaimRequest, ReleaseAnswer, ReleaseRequest } from "./engine.js";
import { READERS_MAX } from "./limits.js";
import { Register } from "./register.js";

/** A claim that waits directly behind another one of the same client. */
export interface Successor {
  readonly claim: ClaimRequest;
  /** Whether its place in the queue is sure for long enough. */
  canFollow(now: number): boolean;
  follow(relay: Relay, now: number): void;
}

/** By the id of the claim before it, as the store said it: nobody can come between the two later. */
export class Successors {
  readonly #byAhead = new Register<Successor>();
  /** Where another thread renews what is held, it asks the store, which may not know yet who does. */
  isOff = false;

  add(ahead: string, successor: Successor): void {
    if (!this.isOff) this.#byAhead.add(ahead, successor);
  }

  remove(ahead: string, successor: Successor): void {
    this.#byAhead.delete(ahead, successor);
  }

  of(id: string, now: number): Successor | null {
    const successor = this.#byAhead.get(id);
    return successor?.canFollow(now) ? successor : null;
  }
}

/** A capacity that is lowered drops a waiter that asks for more: the client would not know. */
export function staysQueued({ units, capacity }: ClaimRequest): boolean {
  return units === 1 || capacity === READERS_MAX;
}

/** Holds of one client that followed each other before the store knew: it hears of it by their releases. */
export class Relay {
  #underWay = 0;
  #settledAt = -Infinity;
  #settled: (() => void)[] = [];

  releasing(): void {
    this.#underWay += 1;
  }

  released(now: number): void {
    this.#underWay -= 1;
    this.#settledAt = now;
    if (this.#underWay === 0) for (const tell of this.#settled.splice(0)) tell();
  }

  /** Whether the store, asked then, may still have had an earlier one of them before the last. */
  mayWait(sentAt: number): boolean {
    return this.#underWay > 0 || sentAt <= this.#settledAt;
  }

  /** The store has heard of all of it. */
  settled(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve();
    return new Promise((resolve) => this.#settled.push(resolve));
  }
}

/** Who gives something back, and is told what came of it. */
export interface Releaser {
  released(answer: ReleaseAnswer): void;
  notReleased(error: unknown): void;
}

/** What a release needs of the client that sends it. */
export interface ReleasingClient {
  readonly successors: Successors;
  startReleasing(request: ReleaseRequest, limitMs: number, now: number, by: Releaser, relay: Relay | null): void;
}

/**
 * Give back a hold beside which no older one lives. Whoever stands directly behind it in this client holds in the same turn,
 * without asking: the store has the one first and the other second, each for as long as its own lease lasts.
 */
export function releaseToSuccessor(
  client: ReleasingClient,
  { name, id, tombstone = "always" }: ReleaseRequest,
  before: Relay | null,
  limitMs: number,
  now: number,
  by: Releaser,
): void {
  const next = client.successors.of(id, now);
  if (next === null) return client.startReleasing({ name, id, tombstone }, limitMs, now, by, null);
  const relay = before ?? new Relay();
  relay.releasing();
  client.startReleasing({ name, id, tombstone, to: next.claim.id }, limitMs, now, by, relay);
  next.follow(relay, now);
}
