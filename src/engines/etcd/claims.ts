// Beyond the common files of an engine: the claims of this engine with their keys and leases, which all verbs work on.

import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { LocalClaim, LocalClaims } from "../../queue/local-claims.js";
import type { Lease, Leases } from "./leases.js";
import { createdAt, remove, underLease } from "./requests.js";
import type { Slots } from "./slots.js";
import type { Store } from "./store.js";

/** Of a queue that seems to be no longer than this, a claim's place is read in the transaction that appends it. */
const SHORT = 16;

/** Where a claim is kept. `slot`: one of this engine's; null where the key is the claim's own for ever, or another engine's. */
type KeyOfClaim = { readonly key: string; readonly slot: string | null };

/** A claim whose key is under a lease of this engine, or may be: it is noted before it is sent. */
export class EtcdClaim extends LocalClaim {
  override readonly key: string;
  readonly slot: string | null;
  lease: Lease;
  /** How many of the oldest claims of its name show who holds. */
  limit = Infinity;
  /** Requests under way that would hit whatever is kept at its key: copies of the claim itself, and a removal without its token. */
  loose = 0;
  unwatchOwn: (() => void) | null = null;
  unwatchPredecessor: (() => void) | null = null;

  constructor(ref: ClaimRef, { key, slot }: KeyOfClaim, lease: Lease, sentAt: number) {
    super(ref, sentAt + lease.ttlMs);
    this.key = key;
    this.slot = slot;
    this.lease = lease;
  }

  /** Whether it is certain which of all that are ever kept at its key it is. */
  get certain(): boolean {
    return this.token > 0 && this.loose === 0;
  }

  /** A heartbeat is about to be sent. */
  renewedAt(sentAt: number): void {
    this.endsAt = Math.max(this.endsAt, sentAt + this.lease.ttlMs);
  }

  /** How long it surely lives, counted from `since`: as long as its own time and the shared lease both last. */
  leftMs(since: number): number {
    return Math.min(this.endsAt, this.lease.provenUntil) - since;
  }
}

export class EtcdClaims extends LocalClaims<EtcdClaim> {
  readonly store: Store;
  readonly leases: Leases;
  readonly #slots: Slots;

  constructor(store: Store, leases: Leases, slots: Slots, tell: (event: EngineEvent) => void) {
    super(store.clock, tell);
    this.store = store;
    this.leases = leases;
    this.#slots = slots;
  }

  /** `key`: where it is, or is to be, kept; otherwise at the next free slot of this engine. */
  note(ref: ClaimRef, lease: Lease, sentAt: number, key?: string): EtcdClaim {
    const before = this.get(ref);
    // A copy of it may be under way: all of them are for the same key, so that only one can take it.
    const kept = before ?? (key === undefined ? this.#nextSlot(ref.name) : { key, slot: null });
    const claim = new EtcdClaim(ref, kept, lease, sentAt);
    if (before !== undefined) {
      super.forget(before);
      this.#endAlone(before.lease);
      claim.loose = before.loose;
    }
    return this.add(claim);
  }

  #nextSlot(name: string): KeyOfClaim {
    const slot = this.#slots.take(name);
    return { key: this.store.keys.claim(name, slot), slot };
  }

  /** Whether another claim of this engine is in the same queue, or on its way there, with the same capacity. */
  isBusy(claim: EtcdClaim): boolean {
    for (const other of this.ofName(claim.name)) {
      if (other !== claim && !other.over && other.limit === claim.limit) return true;
    }
    return false;
  }

  /** Whether its place may be read as it is appended: etcd then walks over the whole queue, while nobody else can write. */
  isShort({ name, limit }: EtcdClaim): boolean {
    return limit <= SHORT && this.countOf(name) <= SHORT;
  }

  /** Its key is under another lease from now on. */
  move(claim: EtcdClaim, lease: Lease, sentAt: number): void {
    this.#endAlone(claim.lease);
    claim.lease = lease;
    this.endAt(claim, sentAt + lease.ttlMs);
  }

  /** `vacant`: the store said that it is not there. */
  override forget(claim: EtcdClaim, vacant = true): void {
    const { name, slot, loose, lease } = claim;
    const noted = this.get(claim) === claim;
    super.forget(claim);
    if (!noted) return;
    this.#endAlone(lease);
    if (slot !== null) this.#slots.leave(name, slot, vacant && loose === 0);
  }

  protected override async remove(claim: EtcdClaim): Promise<boolean> {
    const { key, token, lease } = claim;
    // Unless somebody took it over: then it is under another lease.
    const compare = [underLease(key, lease.id), ...(token > 0 ? [createdAt(key, token)] : [])];
    if (token === 0) claim.loose += 1;
    const removed = !lease.gone && (await this.store.txn({ compare, success: [remove(key)] })).response.succeeded;
    this.forget(claim, removed);
    return removed;
  }

  protected override isHeard({ unwatchOwn }: EtcdClaim): boolean {
    return unwatchOwn !== null;
  }

  protected override unwatch(claim: EtcdClaim): void {
    claim.unwatchOwn?.();
    claim.unwatchOwn = null;
    claim.unwatchPredecessor?.();
    claim.unwatchPredecessor = null;
  }

  #endAlone({ alone, id }: Lease): void {
    if (alone) this.leases.end(id);
  }
}
