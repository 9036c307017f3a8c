// Beyond the common files of an engine: what a claim reads and watches while it waits, and how long it surely lasts.

import type { ClaimRef } from "../../core/engine.js";
import type { Known, Queue } from "../../queue/queue.js";
import type { QueueWatcher } from "../../queue/turns.js";
import type { EtcdClaim, EtcdClaims } from "./claims.js";
import type { Entry } from "./entries.js";
import type { Watches } from "./events.js";
import { DELETED, type Header, type WatchEvent } from "./messages.js";
import { createdAt, get, quietSince } from "./requests.js";
import type { Snapshot, Snapshots, Wanted } from "./snapshots.js";
import type { Proof } from "./store.js";

/** How much of a lease a grant must have ahead of it; a shared lease may be a little older than the claim under it. */
export const SURE_PART = 0.98;

/** Until the lease of a holder that is not ours ends, nobody knows how long that is; `etcdctl lock` asks for this. */
const FOREIGN_LEASE_MS = 10_000;

/** Who is told: all of a claim's events end in one of these. */
type WatcherEvents = {
  /** Its turn may have come. */
  lookUp(claim: EtcdClaim): void;
  /** Its turn has come. */
  granted(claim: EtcdClaim): void;
  /** It has to be asked for: nothing is heard any more. */
  wake(claim: EtcdClaim): void;
};

export class EtcdWatcher implements QueueWatcher<EtcdClaim, Snapshot> {
  readonly #claims: EtcdClaims;
  readonly #snapshots: Snapshots;
  readonly #watches: Watches;
  readonly #events: WatcherEvents;

  constructor(claims: EtcdClaims, snapshots: Snapshots, watches: Watches, events: WatcherEvents) {
    this.#claims = claims;
    this.#snapshots = snapshots;
    this.#watches = watches;
    this.#events = events;
  }

  /** It is in the store: after a while it is watched. */
  found(claim: EtcdClaim, token: number, revision: number): void {
    claim.token = token;
    if (claim.unwatchOwn === null) this.#claims.watchLater(claim, () => this.#watchOwn(claim, revision + 1));
  }

  #watchOwn(claim: EtcdClaim, start_revision: number): void {
    const heard = (events: readonly WatchEvent[]): void => {
      if (claim.over) return;
      if (events.some((event) => event.type === DELETED)) return this.#claims.lose(claim);
      // Somebody touched it, as the capacity changed, or shrank it: who waits for it may fit beside it now.
      this.#claims.changed(claim);
      if (!claim.granted) this.#events.lookUp(claim);
    };
    const broken = (): void => {
      claim.unwatchOwn = null;
      this.#events.wake(claim);
      this.#claims.unheard(claim);
    };
    claim.unwatchOwn = this.#watches.add({ key: claim.key, start_revision, heard, broken });
  }

  /** Mostly its turn has come: what else a claim needs to know that still waits, or has ended, is asked afterwards. */
  async list(claim: EtcdClaim): Promise<Snapshot> {
    this.unwatch(claim);
    const wanted = wantedOf(claim, claim);
    const first = await this.#snapshots.one({ ...wanted, brief: true });
    const holds = first.own !== undefined && first.queue.holds(first.own);
    const seen = holds ? first : await this.#snapshots.one(wanted);
    // Somebody else wrote at its key.
    return seen.own?.record === null ? { ...seen, own: undefined } : seen;
  }

  /** From the revision on at which the predecessor was found to be in the way. */
  async watch(claim: EtcdClaim, { queue, own, before, answered }: Snapshot): Promise<null> {
    if (own === undefined || claim.over || claim.unwatchPredecessor !== null) return null;
    const rule = queue.watchRule(own, before);
    const { predecessor, last } = rule;
    const all = rule.all || predecessor === undefined;
    const heard = (told: readonly WatchEvent[], header: Header): void => {
      // Newcomers are behind it, and whoever is kept between the two keys of a range is neither of them.
      const events = told.filter(({ type, kv }) => type === DELETED || kv?.create_revision !== kv?.mod_revision);
      const of = (key: string): readonly WatchEvent[] => events.filter(({ kv }) => kv?.key === key);
      const matter = all ? events : [...of(predecessor.key), ...of(claim.key)];
      if (matter.length === 0 || claim.over) return;
      const left = matter.some(({ type }) => type === DELETED);
      // The last claim in its way left while the own one was there: both are told by one watch, which leaves nothing out and
      // keeps the order (pitfall 1). Whoever came since is behind it, so it holds from that revision on, although the member
      // that told it may lag. Should the claim end after that, it was granted before: the holder's deadline, which counts
      // from what the quorum confirmed, and the watch on its key take care of it.
      const clear = last && left && of(claim.key).length === 0 && this.#claims.store.isSame(header);
      if (clear) this.#events.granted(claim);
      else this.#events.lookUp(claim);
    };
    const broken = (): void => {
      claim.unwatchPredecessor = null;
      this.#events.wake(claim);
    };
    const range = all ? this.#wholeName(claim) : rangeOf(predecessor.key, last ? claim.key : predecessor.key);
    const start_revision = answered.revision + 1;
    // What a whole name has lost since cannot be seen in it.
    const missed = all ? {} : { missed: () => void this.#catchUp(claim, [predecessor, own], start_revision) };
    claim.unwatchPredecessor = this.#watches.add({ ...range, start_revision, ...missed, heard, broken });
    return null;
  }

  /** Others wrote between the reading and the beginning of the watch: was it one of these that changed? */
  async #catchUp(claim: EtcdClaim, entries: readonly Entry[], since: number): Promise<void> {
    const { unwatchPredecessor } = claim;
    const compare = entries.flatMap(({ key, token }) => [createdAt(key, token), quietSince(key, "", since - 1)]);
    // Where there is nothing to be read a member answers by what it has itself.
    const read = [get(claim.key)];
    const isSame = await this.#claims.store.txn({ compare, success: read, failure: read }).then(
      ({ response }) => response.succeeded,
      () => false,
    );
    const watches = unwatchPredecessor !== null && unwatchPredecessor === claim.unwatchPredecessor;
    if (!isSame && watches && !claim.over) this.#events.lookUp(claim);
  }

  #wholeName({ name }: EtcdClaim): Range {
    const [key, range_end] = this.#claims.store.keys.claims(name);
    return { key, range_end };
  }

  unwatch(claim: EtcdClaim): void {
    claim.unwatchPredecessor?.();
    claim.unwatchPredecessor = null;
  }

  touch({ key, token }: EtcdClaim): void {
    const touch = { request_put: { key, ignore_value: true, ignore_lease: true } };
    this.#claims.store.txn({ compare: [createdAt(key, token)], success: [touch] }).catch(() => {});
  }

  async leftMs(
    claim: EtcdClaim,
    calledAt: number,
    leaseMs: number,
    { answered }: { readonly answered: Proof },
  ): Promise<number> {
    const { lease, granted } = claim;
    const sureUntil = calledAt + leaseMs * SURE_PART;
    // A waiter's deadline counts from this very call, or from the first when it was sent again.
    const until = granted ? sureUntil : Math.min(sureUntil, claim.endsAt);
    lease.prove(answered);
    if (lease.provenUntil < until) {
      await this.#claims.leases.beat(lease, calledAt);
      lease.prove(answered);
    }
    const leftMs = Math.min(claim.leftMs(calledAt), lease.ttlMs);
    const sure = granted ? leftMs > 0 && !lease.gone : lease.provenUntil >= until;
    if (!sure) throw new Error("the lease was not confirmed by the quorum");
    return leftMs;
  }

  placeMs({ endsAt, lease }: EtcdClaim, calledAt: number): number | undefined {
    return endsAt <= lease.provenUntil ? undefined : lease.provenUntil - calledAt;
  }

  /** Each heartbeat that was answered is proven. */
  maySay(): boolean {
    return true;
  }

  async know(_: string, { token, record }: Entry): Promise<Known> {
    return { ...record, token };
  }

  /** The blocking lease lasts this long at most, without another heartbeat. */
  deathShowsMs({ holders }: Queue<Entry>): number {
    return Math.min(...holders.map((holder) => holder.record?.leaseMs ?? FOREIGN_LEASE_MS));
  }
}

/** Where a claim watches its predecessor already, that need not be read. */
export function wantedOf({ name, id }: ClaimRef, local: EtcdClaim | undefined): Wanted {
  const waits = local !== undefined && !local.granted && !isWatching(local) && local.token > 0;
  const { key, limit = Infinity, token } = local ?? {};
  return { ref: { name, id }, key, limit, token: waits ? token : undefined };
}

function isWatching({ unwatchPredecessor, waitsForOwn }: EtcdClaim): boolean {
  return unwatchPredecessor !== null || waitsForOwn;
}

type Range = { readonly key: string; readonly range_end?: string };

/** Where only the predecessor is in the way, the own key too: one watch tells in what order they left (pitfall 1). */
function rangeOf(key: string, own: string): Range {
  if (key === own) return { key };
  return key < own ? { key, range_end: `${own}\0` } : { key: own, range_end: `${key}\0` };
}
