// Beyond the common files of an engine: the claims of this engine with their leases and watches, which all verbs work on.

import type { Timer } from "../../core/clock.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { LocalClaim, LocalClaims } from "../../queue/local-claims.js";
import type { WatchRule } from "../../queue/queue.js";
import type { Entry, EtcdQueue } from "./entries.js";
import type { Watches } from "./events.js";
import type { Lease, Leases } from "./leases.js";
import { DELETED, type Header, type WatchEvent } from "./messages.js";
import { createdAt, remove, underLease } from "./requests.js";
import type { Slots } from "./slots.js";
import type { Store } from "./store.js";

/** Where a claim is kept. `slot`: one of this engine's; null where the key is the claim's own for ever, or another engine's. */
type KeyOfClaim = { readonly key: string; readonly slot: string | null };

/** A claim whose key is under a lease of this engine, or may be: it is noted before it is sent. */
export class EtcdClaim extends LocalClaim {
  readonly key: string;
  readonly slot: string | null;
  lease: Lease;
  /** How many of the oldest claims of its name show who holds. */
  limit = Infinity;
  /** 0 while the answer is not known. */
  token = 0;
  /** Requests under way that would hit whatever is kept at its key: copies of the claim itself, and a removal without its token. */
  loose = 0;
  /** A grant of it lists all live tokens. */
  exact = false;
  /** The revision at which the last claim in its way left, while it was there itself; 0 if that is not known. */
  clearSince = 0;
  watchLater: Timer | null = null;
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

/** Most holds end before it is worth the messages to watch them. */
const WATCH_AFTER_MS = 200;

/** The claims of this engine with their leases and watches, which all verbs work on. */
export class Claims {
  readonly store: Store;
  readonly leases: Leases;
  readonly #slots: Slots;
  readonly #watches: Watches;
  readonly #tell: (event: EngineEvent) => void;
  readonly #lookUp: (claim: EtcdClaim) => void;
  readonly #all: LocalClaims<EtcdClaim>;
  #closed = false;

  /** `lookUp`: the claim's turn may have come. */
  constructor(
    store: Store,
    leases: Leases,
    slots: Slots,
    watches: Watches,
    tell: (event: EngineEvent) => void,
    lookUp: (claim: EtcdClaim) => void,
  ) {
    this.store = store;
    this.leases = leases;
    this.#slots = slots;
    this.#watches = watches;
    this.#tell = tell;
    this.#lookUp = lookUp;
    this.#all = new LocalClaims(store.clock, (due) => this.#expire(due));
  }

  get(ref: ClaimRef): EtcdClaim | undefined {
    return this.#all.get(ref);
  }

  /** `key`: where it is, or is to be, kept; otherwise at the next free slot of this engine. */
  add(ref: ClaimRef, lease: Lease, sentAt: number, key?: string): EtcdClaim {
    const before = this.get(ref);
    // A copy of it may be under way: all of them are for the same key, so that only one can take it.
    const kept = before ?? (key === undefined ? this.#nextSlot(ref.name) : { key, slot: null });
    const claim = new EtcdClaim(ref, kept, lease, sentAt);
    if (before !== undefined) {
      this.#drop(before);
      claim.loose = before.loose;
    }
    return this.#all.add(claim);
  }

  #nextSlot(name: string): KeyOfClaim {
    const slot = this.#slots.take(name);
    return { key: this.store.keys.claim(name, slot), slot };
  }

  /** Whether another claim of this engine is in the same queue, with the same capacity. */
  isBusy(claim: EtcdClaim): boolean {
    for (const other of this.#all.ofName(claim.name)) {
      if (other !== claim && !other.over && other.token > 0 && other.limit === claim.limit) return true;
    }
    return false;
  }

  /** Its key is under another lease from now on. */
  move(claim: EtcdClaim, lease: Lease, sentAt: number): void {
    this.#endAlone(claim.lease);
    claim.lease = lease;
    this.#all.endAt(claim, sentAt + lease.ttlMs);
  }

  /** It is in the store: after a while it is watched. */
  found(claim: EtcdClaim, token: number, granted: boolean, revision: number): void {
    claim.token = token;
    claim.granted ||= granted;
    if (granted) this.#unwatchPredecessor(claim);
    if (claim.over || claim.unwatchOwn !== null || claim.watchLater !== null || this.#closed) return;
    claim.watchLater = this.store.clock.after(WATCH_AFTER_MS, () => {
      claim.watchLater = null;
      this.#watchOwn(claim, revision + 1);
    });
  }

  #watchOwn(claim: EtcdClaim, start_revision: number): void {
    const heard = (events: readonly WatchEvent[]): void => {
      if (claim.over) return;
      if (events.some((event) => event.type === DELETED)) this.lose(claim);
      // Somebody touched it: the capacity changed.
      else if (!claim.granted) this.#lookUp(claim);
    };
    const broken = (): void => {
      claim.unwatchOwn = null;
      this.#wake(claim);
    };
    claim.unwatchOwn = this.#watches.add({ key: claim.key, start_revision, heard, broken });
  }

  /** Watches what the claim waits for, from the revision on at which it was found to be in the way. */
  watch(claim: EtcdClaim, rule: WatchRule<Entry>, revision: number): void {
    this.#unwatchPredecessor(claim);
    if (claim.over || this.#closed) return;
    const { predecessor, last } = rule;
    const all = rule.all || predecessor === undefined;
    const heard = (told: readonly WatchEvent[], header: Header): void => {
      // Newcomers are behind it, and whoever is kept between the two keys of a range is neither of them.
      const events = told.filter(({ type, kv }) => type === DELETED || kv?.create_revision !== kv?.mod_revision);
      const of = (key: string): readonly WatchEvent[] => events.filter(({ kv }) => kv?.key === key);
      const matter = all ? events : [...of(predecessor.key), ...of(claim.key)];
      if (matter.length === 0 || claim.over) return;
      if (last && of(claim.key).length === 0 && this.store.isSame(header)) {
        claim.clearSince = matter.find(({ type }) => type === DELETED)?.kv?.mod_revision ?? 0;
      }
      this.#lookUp(claim);
    };
    const broken = (): void => {
      claim.unwatchPredecessor = null;
      this.#wake(claim);
    };
    const range = all ? this.#wholeName(claim) : rangeOf(predecessor.key, last ? claim.key : predecessor.key);
    claim.unwatchPredecessor = this.#watches.add({ ...range, start_revision: revision + 1, heard, broken });
  }

  #wholeName({ name }: EtcdClaim): Range {
    const [key, range_end] = this.store.keys.claims(name);
    return { key, range_end };
  }

  #wake({ name, id, over }: EtcdClaim): void {
    if (!over) this.#tell({ kind: "wake", name, id });
  }

  #unwatchPredecessor(claim: EtcdClaim): void {
    claim.unwatchPredecessor?.();
    claim.unwatchPredecessor = null;
  }

  /** It was granted after it had waited: whoever waits behind it may have to see a change. */
  touch(claim: EtcdClaim, queue: EtcdQueue, own: Entry): void {
    if (!queue.mustTouch(own)) return;
    const touch = { request_put: { key: claim.key, ignore_value: true, ignore_lease: true } };
    // If it fails, the one behind finds out by its own heartbeats.
    this.store.txn({ compare: [createdAt(claim.key, claim.token)], success: [touch] }).catch(() => {});
  }

  lose(claim: EtcdClaim): void {
    if (claim.over) return;
    const { name, id } = claim;
    this.forget(claim, true);
    this.#tell({ kind: "lost", name, id });
  }

  /** Not ours to look after any more. `vacant`: the store said that it is not there. */
  forget(claim: EtcdClaim, vacant: boolean): void {
    const { name, slot, loose } = claim;
    if (this.get(claim) !== claim) return this.finish(claim);
    this.#drop(claim);
    if (slot !== null) this.#slots.leave(name, slot, vacant && loose === 0);
  }

  #drop(claim: EtcdClaim): void {
    this.finish(claim);
    this.#endAlone(claim.lease);
    this.#all.delete(claim);
  }

  #endAlone({ alone, id }: Lease): void {
    if (alone) this.leases.end(id);
  }

  /** It is over for whoever made it; until the store has confirmed that, it stays noted. */
  finish(claim: EtcdClaim): void {
    claim.over = true;
    if (claim.watchLater !== null) this.store.clock.cancel(claim.watchLater);
    claim.watchLater = null;
    claim.unwatchOwn?.();
    claim.unwatchOwn = null;
    this.#unwatchPredecessor(claim);
  }

  loseAll(): void {
    for (const claim of this.#all.all) this.lose(claim);
  }

  /** Ends everything here and says under which leases there may be a claim. */
  close(): ReadonlySet<Lease> {
    this.#closed = true;
    const all = this.#all.close();
    for (const claim of all) this.finish(claim);
    return new Set(all.map((claim) => claim.lease));
  }

  async #expire(due: readonly EtcdClaim[]): Promise<void> {
    for (const claim of due) this.finish(claim);
    // Where nobody answers, the others are as due later as now.
    for (const claim of due) if (!(await this.#end(claim))) return;
  }

  async #end(claim: EtcdClaim): Promise<boolean> {
    const { key, token, lease } = claim;
    // Unless somebody took it over: then it is under another lease.
    const compare = [underLease(key, lease.id), ...(token > 0 ? [createdAt(key, token)] : [])];
    if (token === 0) claim.loose += 1;
    try {
      const removed = !lease.gone && (await this.store.txn({ compare, success: [remove(key)] })).response.succeeded;
      this.forget(claim, removed);
      return true;
    } catch {
      return false;
    }
  }
}

type Range = { readonly key: string; readonly range_end?: string };

/** Where only the predecessor is in the way, the own key too: one watch tells in what order they left (pitfall 1). */
function rangeOf(key: string, own: string): Range {
  if (key === own) return { key };
  return key < own ? { key, range_end: `${own}\0` } : { key: own, range_end: `${key}\0` };
}
