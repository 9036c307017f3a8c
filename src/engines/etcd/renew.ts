import type { ClaimAnswer, ClaimRef, ClaimRequest, Gone, RenewAnswer, RenewRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { fenceOf, queuedOf } from "../../queue/answers.js";
import { at } from "../../queue/readings.js";
import type { Standing } from "../../queue/turns.js";
import type { EtcdClaim, EtcdClaims } from "./claims.js";
import type { Entry, Record } from "./entries.js";
import { type EtcdError, isLeaseGone, isOutOfSpace } from "./errors.js";
import type { Lease } from "./leases.js";
import type { RequestOp } from "./messages.js";
import { changedAt, createdAt, underLease } from "./requests.js";
import type { Snapshot, Snapshots } from "./snapshots.js";
import { type EtcdWatcher, wantedOf } from "./watcher.js";

/** How often the record of a changed capacity, which lasts a day, is kept alive by those who see it. */
const CAPACITY_BEAT_MS = 60 * 60 * 1000;

const RESIZE_TRIES_MAX = 50;

/** A claim that is there, under a lease that lasts as long as it should. */
type Stands = Standing<EtcdClaim, Snapshot>;

/** Heartbeats, and the lease that a claim should have once its key is there. */
export class Renewals {
  readonly #claims: EtcdClaims;
  readonly #snapshots: Snapshots;
  readonly #watcher: EtcdWatcher;
  readonly #capacityBeats = new Map<bigint, number>();

  constructor(claims: EtcdClaims, snapshots: Snapshots, watcher: EtcdWatcher) {
    this.#claims = claims;
    this.#snapshots = snapshots;
    this.#watcher = watcher;
  }

  async confirm(
    requests: readonly RenewRequest[],
    calledAt: number,
  ): Promise<readonly Promise<RenewAnswer | Stands>[]> {
    const { leases } = this.#claims;
    const locals = requests.map((request) => this.#claims.get(request));
    for (const local of locals) local?.renewedAt(calledAt);
    const used = new Set(
      locals.flatMap((local) => (local === undefined || local.over || isFixed(local) ? [] : [local.lease])),
    );
    const beats = [...used].map((lease) => leases.beat(lease, calledAt));
    const wanted = requests.map((ref, n) => wantedOf(ref, locals[n]));
    const [seen] = await Promise.all([this.#snapshots.all(wanted), ...beats]);
    return requests.map((request, n) => this.#renewal(request, locals[n], at(seen, n), calledAt));
  }

  /** Fewer units for a hold. */
  async shrink(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    for (let tries = 1; tries <= RESIZE_TRIES_MAX; tries += 1) {
      const { own, queue } = await this.#snapshots.one({ ref, limit: Infinity });
      if (own === undefined || own.record === null) return "gone";
      const { key, record } = own;
      if (!queue.holds(own) || units > record.units) return "refused";
      if (units === record.units) return "resized";
      const value = Buffer.from(JSON.stringify({ ...record, units }));
      const { response } = await this.#claims.store.txn({
        compare: [changedAt(key, own.changed)],
        success: [{ request_put: { key, value, ignore_lease: true } }],
      });
      if (response.succeeded) return "resized";
    }
    throw new Error("the claim changed, again and again");
  }

  async #renewal(
    request: RenewRequest,
    local: EtcdClaim | undefined,
    seen: Snapshot,
    calledAt: number,
  ): Promise<Gone | Stands> {
    const { own } = seen;
    if (own === undefined || own.record === null || local?.over || local?.lease.gone) {
      if (local !== undefined) this.#claims.forget(local, own === undefined);
      return { kind: "gone" };
    }
    this.#keepCapacity(seen, calledAt);
    const { record } = own;
    const granted = seen.queue.holds(own);
    const leaseMs = granted ? (request.leaseMs ?? record.leaseMs) : waiterLeaseMs(record.leaseMs);
    const ours = local !== undefined && local.lease.id === own.lease;
    if (ours && (!granted || (!record.fixed && leaseMs <= local.lease.ttlMs))) {
      return this.#stands(record, local, seen, own, leaseMs);
    }
    return this.#moved({ ref: request, own, record, seen, calledAt, leaseMs });
  }

  /** A claim of another client's, or one that is to last longer, or for a fixed time from now: it gets another lease. */
  async #moved(move: Move): Promise<Gone | Stands> {
    const { own, leaseMs } = move;
    const now = this.#claims.get(move.ref)?.lease;
    let leftMs = now?.id === own.lease ? now.ttlMs : Infinity;
    // A lease end never moves back, and etcd says in whole seconds where it is.
    if (leftMs > leaseMs) {
      const { TTL } = await this.#claims.store.client.call("leaseTimeToLive", { ID: own.lease });
      if (TTL < 0) return { kind: "gone" };
      leftMs = (TTL + 1) * 1000;
    }
    return this.#moveFor(Math.max(leaseMs, leftMs), move).catch((cause: unknown) => {
      if (!isOutOfSpace(cause)) throw cause;
      return this.#stays(move, cause);
    });
  }

  /** Nothing can be written, but a lease can be kept alive: a claim of ours goes on under the one that it has. */
  #stays({ ref, own, record, seen, leaseMs }: Move, cause: EtcdError): Stands {
    const local = this.#claims.get(ref);
    if (local?.lease.id !== own.lease || !isFit(record, local.lease) || isFixed(local)) throw cause;
    return this.#stands(record, local, seen, own, Math.min(leaseMs, local.lease.ttlMs));
  }

  async #moveFor(lastsMs: number, move: Move): Promise<Gone | Stands> {
    const { leases, store } = this.#claims;
    const { ref, own, record, seen, calledAt, leaseMs } = move;
    const lease = await (record.fixed ? leases.alone(lastsMs) : leases.of(lastsMs));
    const put: RequestOp = { request_put: { key: own.key, ignore_value: true, lease: lease.id } };
    const compare = [createdAt(own.key, own.token), underLease(own.key, own.lease)];
    const moving = store.txn({ compare, success: [put] }).catch((cause: unknown) => {
      if (isLeaseGone(cause)) leases.lost(lease);
      throw cause;
    });
    const beat = lease.provenUntil < calledAt + leaseMs ? leases.beat(lease, calledAt) : undefined;
    const [moved] = await Promise.all([moving, beat]);
    const before = this.#claims.get(ref);
    const over = !moved.response.succeeded || before?.over === true;
    if (over && lease.alone) leases.end(lease.id);
    if (!moved.response.succeeded) throw new Error("the claim changed hands meanwhile");
    if (before?.over) return { kind: "gone" };
    if (before !== undefined) this.#claims.move(before, lease, calledAt);
    const local = before ?? this.#claims.note(ref, lease, calledAt, own.key);
    const answered = { ...moved, revision: seen.answered.revision };
    return this.#stands(record, local, { ...seen, answered }, own, leaseMs);
  }

  /** A claim that was sent again: answered as it is, which is no heartbeat. */
  async known(ref: ClaimRef, seen: Snapshot, calledAt: number): Promise<ClaimAnswer | Stands> {
    const { own, queue, answered } = seen;
    if (own === undefined || own.record === null) return { kind: "gone" };
    const local = this.#claims.get(ref);
    const { record } = own;
    const granted = queue.holds(own);
    if (local !== undefined && local.lease.id === own.lease) {
      if (!granted || isFit(record, local.lease)) {
        return this.#stands(record, local, seen, own, granted ? 0 : waiterLeaseMs(record.leaseMs));
      }
      // Granted since, under a waiter's lease: it keeps the time that is left of it.
      const leaseMs = local.leftMs(calledAt);
      if (leaseMs <= 0) throw new Error("the lease was not confirmed by the quorum");
      return this.#moveFor(leaseMs, { ref, own, record, seen, calledAt, leaseMs });
    }
    if (!granted) return queuedOf(this.#watcher, ref.name, queue, own, own.token);
    const { TTL, header } = await this.#claims.store.client.call("leaseTimeToLive", { ID: own.lease });
    if (TTL < 0) return { kind: "gone" };
    // As with a keep-alive: what a leader says counts if the quorum answered in its term.
    if (header.raft_term !== answered.term) throw new Error(`the leader changed while "${ref.name}" was read`);
    const leaseMs = TTL * 1000;
    if (leaseMs === 0 || record.fixed) {
      const exact = record.exact === true;
      const fence = await fenceOf(this.#watcher, { name: ref.name, exact }, own.token, queue.holders);
      return { kind: "granted", leftMs: leaseMs, ...fence };
    }
    // Others may keep the lease alive that it shares, and its own client takes it out before that ends: not from under ours.
    // Part of a second is left besides, and whoever holds it elsewhere counts on that.
    return this.#moveFor(leaseMs + 1000, { ref, own, record, seen, calledAt, leaseMs });
  }

  /** A claim that was just appended, under the lease of a waiter unless it seemed to fit. */
  async joined(claim: ClaimRequest, local: EtcdClaim, seen: Snapshot, calledAt: number): Promise<Gone | Stands> {
    const { own, queue } = seen;
    if (own === undefined) throw new Error("invariant: a claim that was appended is there");
    const granted = queue.holds(own);
    const leaseMs = granted ? claim.leaseMs : waiterLeaseMs(claim.leaseMs);
    // It seemed to fit, and others came first: should it die while it waits, it must not be in the way for all of its lease.
    if (!granted && claim.leaseMs > leaseMs && local.lease.ttlMs > leaseMs) {
      return this.#moveFor(leaseMs, { ref: claim, own, record: claim, seen, calledAt, leaseMs });
    }
    if (!granted || (isFit(claim, local.lease) && leaseMs <= local.lease.ttlMs)) {
      return { ...this.#stands(claim, local, seen, own, leaseMs), arrived: true };
    }
    return this.#moved({ ref: claim, own, record: claim, seen, calledAt, leaseMs });
  }

  #stands({ exact }: Terms, claim: EtcdClaim, seen: Snapshot, { token }: Entry, leaseMs: number): Stands {
    claim.exact = exact === true;
    this.#watcher.found(claim, token, seen.answered.revision);
    return { claim, found: seen, leaseMs };
  }

  #keepCapacity({ changed: { to, lease } }: Snapshot, now: number): void {
    const beats = this.#capacityBeats;
    if (to === null || now - (beats.get(lease) ?? -Infinity) < CAPACITY_BEAT_MS) return;
    // Of records that are gone by now nothing is kept.
    for (const [other, at] of beats) if (now - at >= CAPACITY_BEAT_MS) beats.delete(other);
    beats.set(lease, now);
    this.#claims.store.client.keepAlive(lease).catch(() => beats.delete(lease));
  }
}

/** A hold of fixed length must not be under a lease that the heartbeats of others make last. */
function isFit({ fixed }: Terms, { alone }: Lease): boolean {
  return fixed !== true || alone;
}

/** It holds for as long as was said, and a keep-alive would change that. */
function isFixed({ granted, lease }: EtcdClaim): boolean {
  return granted && lease.alone;
}

/** A claim that is to get another lease, as it was seen. */
type Move = {
  readonly ref: ClaimRef;
  readonly own: Entry;
  readonly record: Terms;
  readonly seen: Snapshot;
  readonly calledAt: number;
  readonly leaseMs: number;
};

type Terms = Pick<Record, "exact" | "fixed">;
