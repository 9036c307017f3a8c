import type { ClaimAnswer, ClaimRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Standing } from "../../queue/turns.js";
import type { EtcdClaim, EtcdClaims } from "./claims.js";
import { holderOf, limitOf, recordText } from "./entries.js";
import { didNothing, isLeaseGone } from "./errors.js";
import type { Lease } from "./leases.js";
import type { RequestOp, TxnRequest } from "./messages.js";
import type { Renewals } from "./renew.js";
import { absent, changedAt, createdAt, get, oldest, put, quietSince, remove } from "./requests.js";
import type { Snapshot, Snapshots } from "./snapshots.js";
import { type Answered, found } from "./store.js";
import { type EtcdWatcher, SURE_PART } from "./watcher.js";

/** Others may come between reading and writing; each time one of them got on. */
const TRIES_MAX = 50;

type Outcome = ClaimAnswer | Standing<EtcdClaim, Snapshot>;

/** A free name is taken in one transaction; a busy one is read first. */
export class Claiming {
  readonly #claims: EtcdClaims;
  readonly #snapshots: Snapshots;
  readonly #watcher: EtcdWatcher;
  readonly #renewals: Renewals;

  constructor(claims: EtcdClaims, snapshots: Snapshots, watcher: EtcdWatcher, renewals: Renewals) {
    this.#claims = claims;
    this.#snapshots = snapshots;
    this.#watcher = watcher;
    this.#renewals = renewals;
  }

  async append(claim: ClaimRequest, calledAt: number): Promise<Outcome> {
    return this.#claims.get(claim) === undefined ? this.#first(claim, calledAt) : this.#again(claim, calledAt);
  }

  async #first(claim: ClaimRequest, calledAt: number): Promise<Outcome> {
    const { store, leases } = this.#claims;
    // Whoever else asks with the same id must find it there.
    const key = claim.chosen ? store.keys.claim(claim.name, claim.id) : undefined;
    for (let tries = 1; ; tries += 1) {
      const lease = await (claim.fixed ? leases.alone(claim.leaseMs) : leases.of(claim.leaseMs));
      // Its time ended while a lease was asked for: its key is being removed, and a new one there could be hit by that.
      if (this.#claims.get(claim)?.over) {
        if (lease.alone) leases.end(lease.id);
        return { kind: "gone" };
      }
      const beat = isSure(lease, claim.leaseMs, calledAt) ? undefined : leases.beat(lease, calledAt);
      const local = this.#claims.note(claim, lease, calledAt, key);
      local.limit = limitOf(claim.capacity);
      // At a key of this engine's own nobody else puts anything.
      local.made = key === undefined;
      try {
        const outcome = await this.#take(claim, local, calledAt, beat);
        if ("kind" in outcome && outcome.kind !== "granted" && outcome.kind !== "queued") this.#claims.forget(local);
        return outcome;
      } catch (cause) {
        if (isLeaseGone(cause) && tries === 1) {
          leases.lost(local.lease);
          continue;
        }
        // Otherwise it may be there, and stays noted.
        if (didNothing(cause)) this.#claims.forget(local);
        throw cause;
      }
    }
  }

  /** Sent again: what is there, or may still be on its way, stays noted as it is. */
  async #again(claim: ClaimRequest, calledAt: number): Promise<Outcome> {
    const { store } = this.#claims;
    // First the tombstone: it may be set between the two readings, and then the second finds nothing, or what is about to leave.
    const buried = found(await store.txn({ success: [get(store.keys.tombstone(claim.name, claim.id))] }), 0).length > 0;
    const seen = await this.#snapshots.one({ ref: claim, limit: Infinity });
    const known = this.#claims.get(claim);
    if (buried || known?.over) return { kind: "gone" };
    if (seen.own !== undefined) return this.#renewals.known(claim, seen, calledAt);
    if (known !== undefined && seen.queue.find(known.key) !== undefined) {
      this.#claims.forget(known, false);
      throw new Error("somebody else wrote at this claim's key");
    }
    // It never arrived, or has ended: it is asked for as if for the first time.
    return this.#first(claim, calledAt);
  }

  /** Writes its key. Until that is answered a copy may arrive at any time. */
  async #put(local: EtcdClaim, request: TxnRequest): Promise<Answered> {
    local.loose += 1;
    try {
      const answered = await this.#claims.store.write(request, local.name);
      local.loose -= 1;
      local.made ||= answered.response.succeeded;
      return answered;
    } catch (cause) {
      if (didNothing(cause)) local.loose -= 1;
      throw cause;
    }
  }

  async #take(
    claim: ClaimRequest,
    local: EtcdClaim,
    calledAt: number,
    beat: Promise<void> | undefined,
  ): Promise<Outcome> {
    const { from, to, tombstone, capacity } = this.#keysOf(claim);
    // Another claim of ours is there: the name is not free. Asking whether it is makes etcd read the whole queue.
    if (claim.wait && this.#claims.isBusy(local)) {
      await beat;
      return this.#join(claim, local, calledAt, true);
    }
    const append = put(local.key, recordText(claim), local.lease.id);
    // Whatever a transaction that writes also reads holds up all others: a queue, which may be long, is read apart.
    const failure = [get(tombstone), get(local.key)];
    const compare = [absent(from, to), absent(tombstone), absent(capacity)];
    let answered = await this.#put(local, { compare, success: [append], failure });
    // It was sent before, and never rejects.
    if (beat !== undefined) await beat;
    for (let tries = 1; !answered.response.succeeded; tries += 1) {
      if (tries > TRIES_MAX) throw new Error("others came first, again and again");
      if (found(answered, 0).length > 0) return { kind: "gone" };
      if (found(answered, 1).length > 0) return this.#again(claim, calledAt);
      const seen = await this.#snapshots.one({ ref: claim, key: local.key, limit: local.limit });
      const { queue, changed } = seen;
      const empty = queue.entries.length === 0;
      if (!empty && queue.capacity !== null && queue.capacity !== claim.capacity) {
        return { kind: "mismatch", capacity: queue.capacity };
      }
      if (claim.wait && !empty) return this.#join(claim, local, calledAt, !queue.fits(claim.units));
      if (!empty && !queue.fits(claim.units)) return { kind: "busy", ...holderOf(queue) };
      answered = await this.#put(local, { ...this.#enter(claim, append, seen), failure });
      if (answered.response.succeeded && empty && changed.to !== null) this.#claims.leases.end(changed.lease);
    }
    return this.#granted(claim, local, answered, calledAt);
  }

  /** Take what was seen to be free, if nobody came since. */
  #enter(claim: ClaimRequest, append: RequestOp, { queue, changed, answered }: Snapshot): TxnRequest {
    const { from, to, tombstone, capacity } = this.#keysOf(claim);
    // An idle name forgets its capacity.
    if (queue.entries.length === 0) {
      return { compare: [absent(from, to), absent(tombstone)], success: [append, remove(capacity)] };
    }
    const compare = [quietSince(from, to, answered.revision), absent(tombstone), changedAt(capacity, changed.revision)];
    return { compare, success: [append, get(capacity), oldest(from, to, limitOf(claim.capacity))] };
  }

  /** Appends it to the queue, and reads where that is: perhaps at the front by now. */
  async #join(claim: ClaimRequest, local: EtcdClaim, calledAt: number, willWait: boolean): Promise<Outcome> {
    const { store, leases } = this.#claims;
    if (willWait) {
      this.#claims.move(local, await leases.of(waiterLeaseMs(claim.leaseMs)), calledAt);
      // In time for the answer: how long the place is sure.
      if (!isSure(local.lease, waiterLeaseMs(claim.leaseMs), calledAt)) void leases.beat(local.lease, calledAt);
    }
    const { key, limit } = local;
    const short = this.#claims.isShort(local);
    const joined = await this.#put(local, {
      compare: [absent(key), absent(this.#keysOf(claim).tombstone)],
      success: [put(key, recordText(claim), local.lease.id), ...(short ? this.#snapshots.atEnd(claim, limit) : [])],
    });
    if (!joined.response.succeeded) return this.#again(claim, calledAt);
    const seen = short
      ? await this.#snapshots.seenAtEnd(claim, limit, joined, 1)
      : await this.#snapshots.one({ ref: claim, key, limit, token: joined.revision });
    const { capacity } = seen.queue;
    // The name fell idle and was taken for something else between the two transactions.
    if (capacity !== null && capacity !== claim.capacity) {
      await store.txn({ compare: [createdAt(local.key, joined.revision)], success: [remove(local.key)] });
      // Or only idle: then the capacity is that of nobody.
      if (seen.queue.entries.length === 1) throw new Error("the name fell idle meanwhile");
      return { kind: "mismatch", capacity };
    }
    if (seen.own === undefined) return { kind: "gone" };
    return this.#renewals.joined(claim, local, seen, calledAt);
  }

  #keysOf({ name, id }: ClaimRequest) {
    const { keys } = this.#claims.store;
    const [from, to] = keys.claims(name);
    return { from, to, tombstone: keys.tombstone(name, id), capacity: keys.capacity(name) };
  }

  async #granted(claim: ClaimRequest, local: EtcdClaim, answered: Answered, calledAt: number): Promise<ClaimAnswer> {
    const { revision } = answered;
    // Where others held already, the transaction read them after it had written.
    const holders = found(answered, 2).map((kv) => kv.create_revision);
    const floor = holders[0] ?? revision;
    const live = claim.exact ? { live: holders.length > 0 ? holders : [revision] } : {};
    local.granted = true;
    this.#watcher.found(local, revision, revision);
    const leftMs = await this.#watcher.leftMs(local, calledAt, claim.leaseMs, { answered });
    return { kind: "granted", leftMs, token: revision, floor, ...live };
  }
}

function isSure({ provenUntil }: Lease, leaseMs: number, calledAt: number): boolean {
  return provenUntil - calledAt >= leaseMs * SURE_PART;
}
