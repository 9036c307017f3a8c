import type { EngineEvent, Fence, Gone, Granted, Queued } from "../core/engine.js";
import { type EntryReader, fenceOf, queuedOf } from "./answers.js";
import type { LocalClaim, LocalClaims } from "./local-claims.js";
import type { Queue, QueueEntry } from "./queue.js";

/** A queue as one reading showed it, with the own entry. */
export type Seen = { readonly queue: Queue; readonly own: QueueEntry | undefined };

/** A claim that is in its queue, as it was seen. `leaseMs`: how long it is to last from the call on. */
export type Standing<Claim, Found> = { readonly claim: Claim; readonly found: Found; readonly leaseMs: number };

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
  /** Whether a grant may be pushed: the core counts it from the last heartbeat, as long as a waiter's lease. */
  maySay(claim: Claim): boolean;
}

/** Hand-over, as a waiter sees it. A watch tells of a change, a lookup whether its turn has come. */
export class Turns<Claim extends LocalClaim, Found extends Seen> {
  readonly #store: QueueWatcher<Claim, Found>;
  readonly #claims: LocalClaims<Claim>;
  readonly #tell: (event: EngineEvent) => void;
  /** Claims that are looked up, and whether to do it once more. */
  readonly #underWay = new Map<Claim, boolean>();

  constructor(store: QueueWatcher<Claim, Found>, claims: LocalClaims<Claim>, tell: (event: EngineEvent) => void) {
    this.#store = store;
    this.#claims = claims;
    this.#tell = tell;
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
    const { name, id } = claim;
    this.#hold(claim);
    this.#tell({ kind: "granted", name, id, ...fence });
  }

  /** The core asks for it. */
  wake({ name, id, over }: Claim): void {
    if (!over) this.#tell({ kind: "wake", name, id });
  }

  /** What a claim is told that is in its queue: before it is told to wait, what it waits for is watched. */
  async answer(standing: Standing<Claim, Found>, calledAt: number): Promise<Granted | Queued | Gone> {
    const { claim, leaseMs } = standing;
    const found = await this.#watched(claim, standing.found);
    if (found?.own === undefined) return { kind: "gone" };
    const { queue, own } = found;
    const granted = claim.granted || queue.holds(own);
    if (granted) this.#grant(claim, queue, own);
    const fence = granted ? await this.#fence(claim, queue) : null;
    const leftMs = await this.#store.leftMs(claim, calledAt, leaseMs, found);
    if (claim.over) return { kind: "gone" };
    if (fence !== null) return { kind: "granted", leftMs, ...fence };
    return queuedOf(this.#store, claim.name, queue, own, claim.token);
  }

  async #lookUp(claim: Claim): Promise<void> {
    try {
      const found = await this.#watched(claim);
      // Granted: a heartbeat was answered meanwhile.
      if (found?.own === undefined || claim.granted || !found.queue.holds(found.own)) return;
      const { name, id } = claim;
      this.#grant(claim, found.queue, found.own);
      const fence = await this.#fence(claim, found.queue);
      if (!this.#store.maySay(claim)) this.wake(claim);
      else if (!claim.over) this.#tell({ kind: "granted", name, id, ...fence });
    } catch {
      // Not known: the core asks, until it is answered.
      this.#store.unwatch(claim);
      this.wake(claim);
    }
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
      const newer = claim.granted ? null : await this.#store.watch(claim, found);
      if (newer === null && !claim.granted) return found;
      // Granted since this was read: whoever held before it would be named as live beside it.
      readAgain = newer === null;
      found = newer ?? (await this.#store.list(claim));
    }
  }

  #grant(claim: Claim, queue: Queue, own: QueueEntry): void {
    if (claim.granted) return;
    this.#hold(claim);
    if (queue.mustTouch(own)) this.#store.touch(claim);
  }

  /** After waiting its lease stays as it is, until a heartbeat confirms it. */
  #hold(claim: Claim): void {
    claim.granted = true;
    this.#store.unwatch(claim);
  }

  #fence(claim: Claim, { holders }: Queue): Promise<Fence> {
    return fenceOf(this.#store, claim, claim.token, holders);
  }
}
