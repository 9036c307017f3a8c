import type { EngineEvent, Fence, Gone, Granted, Queued } from "../core/engine.js";
import { type EntryReader, fenceOf, holderOf, queuedOf } from "./answers.js";
import type { LocalClaim, LocalClaims } from "./local-claims.js";
import type { Queue, QueueEntry } from "./queue.js";

/** A queue as one reading showed it, with the own entry. `before`: the entry before it, where not all of them were read. */
export type Seen = {
  readonly queue: Queue;
  readonly own: QueueEntry | undefined;
  readonly before?: QueueEntry | undefined;
};

/** A claim that is in its queue, as it was seen. `leaseMs`: how long it is to last from the call on. `arrived`: just now. */
export type Standing<Claim, Found> = {
  readonly claim: Claim;
  readonly found: Found;
  readonly leaseMs: number;
  readonly arrived?: boolean;
};

/** What a store does for a claim that waits. */
export interface QueueWatcher<Claim, Found> extends EntryReader {
  /** The own entry is read in the same step as those before it (pitfall 1). */
  list(claim: Claim): Promise<Found>;
  /** Watches what the claim waits for; any change requests a lookup. A newer queue, if it changed before it was watched. */
  watch(claim: Claim, found: Found): Promise<Found | null>;
  /** What it waits for is watched no more. */
  unwatch(claim: Claim): void;
  /** Whoever watches its entry sees a change; who is not told finds out by its own heartbeats. */
  touch(claim: Claim): void;
  /** How long it surely lasts, counted from the call. Rejects where that is shorter than a waiter counts on. */
  leftMs(claim: Claim, calledAt: number, leaseMs: number, found: Found): Promise<number>;
  /** How long its place is sure from the call on, where that is shorter than its waiter's lease. */
  placeMs(claim: Claim, calledAt: number): number | undefined;
  /** Whether a grant may be pushed: the core counts it from the last heartbeat, for as long as the place was said to be sure. */
  maySay(claim: Claim): boolean;
}

/** Hand-over, as a waiter sees it. A watch tells of a change, a lookup whether its turn has come. */
export class Turns<Claim extends LocalClaim, Found extends Seen> {
  readonly #store: QueueWatcher<Claim, Found>;
  readonly #claims: LocalClaims<Claim>;
  readonly #tell: (event: EngineEvent) => void;
  /** Claims that are looked up, and whether to do it once more. */
  readonly #underWay = new Map<Claim, boolean>();
  /** Who waits for a claim of this engine, and for which: what becomes of that is known here. */
  readonly #behind = new Map<Claim, Set<Claim>>();
  readonly #waitsFor = new Map<Claim, Claim>();

  constructor(store: QueueWatcher<Claim, Found>, claims: LocalClaims<Claim>, tell: (event: EngineEvent) => void) {
    this.#store = store;
    this.#claims = claims;
    this.#tell = tell;
    claims.left = (claim) => this.#left(claim);
    claims.changed = (claim) => this.#changed(claim);
    claims.unheard = (claim) => this.#unheard(claim);
  }

  /**
   * Its client let the claim `id` go, and this one, which stands directly behind it, went on: it is not told when the store
   * shows that. The store goes on saying who holds: until then its heartbeats are answered `queued`.
   */
  follow(claim: Claim, id: string): void {
    if (claim.ahead === id) claim.followed = true;
  }

  /** One lookup of a claim at a time. What changes while one is under way asks for one more, however often it changes. */
  async lookUp(claim: Claim): Promise<void> {
    if (claim.over || claim.granted) return;
    if (this.#underWay.has(claim)) return void this.#underWay.set(claim, true);
    do {
      this.#underWay.set(claim, false);
      await this.#lookUp(claim);
    } while (this.#underWay.get(claim));
    this.#underWay.delete(claim);
  }

  /** It is known that the claim's turn has come, without a lookup. */
  push(claim: Claim, fence: Fence): void {
    if (claim.over || claim.granted) return;
    this.#hold(claim);
    this.#tellGrant(claim, fence);
  }

  /** The core asks for it. */
  wake({ name, id, over }: Claim): void {
    if (!over) this.#tell({ kind: "wake", name, id });
  }

  /** What a claim is told that is in its queue: before it is told to wait, what it waits for is watched. */
  async answer(standing: Standing<Claim, Found>, calledAt: number): Promise<Granted | Queued | Gone> {
    const { claim, leaseMs } = standing;
    // What a waiter is told of the holders is read in the round trip in which what it waits for is watched.
    if (isWaiting(standing.found)) holderOf(this.#store, claim.name, standing.found.queue).catch(() => {});
    const found = await this.#watched(claim, standing.found);
    if (found?.own === undefined) return { kind: "gone" };
    const { queue, own } = found;
    const granted = claim.granted || queue.holds(own);
    if (granted) this.#grant(claim, queue, own);
    const fence = granted ? await this.#fence(claim, queue) : null;
    const leftMs = await this.#store.leftMs(claim, calledAt, leaseMs, found);
    if (claim.over) return { kind: "gone" };
    if (fence !== null) return { kind: "granted", leftMs, ...fence };
    const answer = await queuedOf(this.#store, claim.name, queue, own, claim.token);
    const placeMs = this.#store.placeMs(claim, calledAt);
    const place = placeMs === undefined ? {} : { leftMs: placeMs };
    return { ...answer, ...place, ...(standing.arrived ? this.#aheadOf(claim, found) : {}) };
  }

  /** The live claim of this engine directly before it: nobody comes between the two later. */
  #aheadOf(claim: Claim, { queue, own, before }: Found): { readonly ahead?: string } {
    const entry = own && (before ?? queue.before(own));
    const ahead = entry && this.#claims.ownOf(claim.name, entry);
    if (ahead === undefined || !ahead.made || ahead.over || this.#claims.hasEnded(ahead)) return {};
    claim.ahead = ahead.id;
    return { ahead: ahead.id };
  }

  async #lookUp(claim: Claim): Promise<void> {
    try {
      const found = await this.#watched(claim);
      // Granted: a heartbeat was answered meanwhile.
      if (found?.own === undefined || claim.granted || !found.queue.holds(found.own)) return;
      this.#grant(claim, found.queue, found.own);
      if (claim.followed) return;
      const fence = await this.#fence(claim, found.queue);
      if (!this.#store.maySay(claim)) this.wake(claim);
      else if (!claim.over) this.#tellGrant(claim, fence);
    } catch {
      // Not known: the core asks, until it is answered.
      this.#unwatch(claim);
      this.wake(claim);
    }
  }

  #tellGrant({ name, id, followed }: Claim, fence: Fence): void {
    if (!followed) this.#tell({ kind: "granted", name, id, ...fence });
  }

  /** The queue in which it is the claim's turn, or in which all that it waits for is watched. Null: the claim is over. */
  async #watched(claim: Claim, first?: Found): Promise<Found | null> {
    let readAgain = false;
    for (let found = first ?? (await this.#store.list(claim)); ; ) {
      if (claim.over) return null;
      if (found.own === undefined) {
        this.#claims.lose(claim);
        return null;
      }
      if (readAgain || found.queue.holds(found.own)) return found;
      const newer = claim.granted || this.#waits(claim, found) ? null : await this.#store.watch(claim, found);
      if (newer === null && !claim.granted) return found;
      // Granted since this was read: whoever held before it would be named as live beside it.
      readAgain = newer === null;
      found = newer ?? (await this.#store.list(claim));
    }
  }

  /** What it waits for is a claim of this engine, whose entry is watched once for all who wait for it. */
  #waits(claim: Claim, { queue, own, before }: Found): boolean {
    if (own === undefined) return false;
    claim.permit = queue.isPermit(own);
    if (this.#waitsFor.has(claim)) {
      // The first waiter of a semaphore waits for any holder (pitfall 56).
      if (!claim.permit || !queue.isFirstWaiter(own)) return true;
      this.#unwatch(claim);
      return false;
    }
    const { predecessor, all } = queue.watchRule(own, before ?? queue.before(own));
    const first = all || predecessor === undefined ? undefined : this.#claims.ownOf(claim.name, predecessor);
    if (first === undefined || !this.#claims.countOn(first)) return false;
    const behind = this.#behind.get(first) ?? new Set();
    this.#behind.set(first, behind.add(claim));
    this.#waitsFor.set(claim, first);
    claim.waitsForOwn = true;
    return true;
  }

  #changed(claim: Claim): void {
    for (const next of this.#behind.get(claim) ?? []) void this.lookUp(next);
  }

  /** What becomes of a claim would not be known here: who waits for it watches by itself. */
  #unheard(claim: Claim): void {
    for (const next of this.#behind.get(claim) ?? []) {
      this.#unwatch(next);
      void this.lookUp(next);
    }
  }

  /** A claim's entry is gone. Who went on in its place holds from now on, by the store too. */
  #left(claim: Claim): void {
    this.#unwatch(claim);
    const behind = this.#behind.get(claim);
    this.#behind.delete(claim);
    for (const next of behind ?? []) {
      this.#unwatch(next);
      if (next.followed && !next.permit) next.granted = true;
      else void this.lookUp(next);
    }
  }

  #unwatch(claim: Claim): void {
    const first = this.#waitsFor.get(claim);
    if (first === undefined) return this.#store.unwatch(claim);
    this.#waitsFor.delete(claim);
    claim.waitsForOwn = false;
    const behind = this.#behind.get(first);
    behind?.delete(claim);
    if (behind?.size === 0) this.#behind.delete(first);
  }

  #grant(claim: Claim, queue: Queue, own: QueueEntry): void {
    if (claim.granted) return;
    this.#hold(claim);
    if (!queue.mustTouch(own)) return;
    this.#store.touch(claim);
    this.#changed(claim);
  }

  /** After waiting its lease stays as it is, until a heartbeat confirms it. */
  #hold(claim: Claim): void {
    claim.granted = true;
    this.#unwatch(claim);
  }

  #fence(claim: Claim, { holders }: Queue): Promise<Fence> {
    return fenceOf(this.#store, claim, claim.token, holders);
  }
}

function isWaiting({ queue, own }: Seen): boolean {
  return own !== undefined && !queue.holds(own);
}
