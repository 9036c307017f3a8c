import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Gone,
  Granted,
  Queued,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Tracked } from "./claims.js";
import { type EtcdError, isLeaseGone, isOutOfSpace } from "./driver.js";
import { type Entry, type Record, targetOf } from "./entries.js";
import { translated } from "./errors.js";
import type { Lease } from "./leases.js";
import type { RequestOp } from "./messages.js";
import type { Parts } from "./parts.js";
import { createdAt, get, underLease } from "./requests.js";
import type { Seen, View, Want } from "./snapshots.js";
import { type Answered, found, OPERATIONS_MAX, type Proof } from "./transactions.js";

/** How much of a lease a grant must have ahead of it; a shared lease may be a little older than the claim under it. */
export const SURE_PART = 0.98;

/** How often the record of a changed capacity, which lasts a day, is kept alive by those who see it. */
const CAPACITY_BEAT_MS = 60 * 60 * 1000;

/** Heartbeats, and what becomes of a claim once it stands: who waits, whose turn it is, how long it surely lasts. */
export class Renewing {
  readonly #parts: Parts;
  readonly #capacityBeats = new Map<bigint, number>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const { book, leases, store, views } = this.#parts;
    const calledAt = store.clock.now();
    const tracked = signs.map((sign) => book.get(sign));
    for (const one of tracked) one?.sign(calledAt);
    const living = new Set(
      tracked.flatMap((one) => (one === undefined || one.over || isFixed(one) ? [] : [one.lease])),
    );
    const beats = [...living].map((lease) => leases.beat(lease, calledAt));
    const wants = signs.map((ref, n) => wantOf(ref, tracked[n]));
    const [seen] = await Promise.all([views.all(wants), ...beats]);
    const settled = await Promise.allSettled(
      signs.map((sign, n) => this.#renewal(sign, tracked[n], seen[n], calledAt)),
    );
    const renewals = settled.map(
      (one): RenewAnswer =>
        one.status === "fulfilled" ? one.value : { kind: "unknown", cause: translated(one.reason) },
    );
    return this.#withReasons(signs, renewals);
  }

  /** Of claims that are not there any more: whether somebody released them. */
  async #withReasons(
    signs: readonly RenewRequest[],
    renewals: readonly RenewAnswer[],
  ): Promise<readonly RenewAnswer[]> {
    const { keys, store } = this.#parts;
    const gone = signs.flatMap((sign, n) => (renewals[n]?.kind === "gone" ? [{ ...sign, n }] : []));
    const all = [...renewals];
    for (let first = 0; first < gone.length; first += OPERATIONS_MAX) {
      const some = gone.slice(first, first + OPERATIONS_MAX);
      const looks = some.map(({ name, id }) => get(keys.mark(name, id)));
      // Without an answer it is gone all the same, and its holder is told now.
      const answered = await store.txn({ success: looks }).catch(() => null);
      if (answered === null) break;
      for (const [k, { n }] of some.entries()) {
        if (found(answered, k).length > 0) all[n] = { kind: "gone", revoked: true };
      }
    }
    return all;
  }

  async #renewal(
    sign: RenewRequest,
    tracked: Tracked | undefined,
    seen: Seen | undefined,
    calledAt: number,
  ): Promise<RenewAnswer> {
    if (seen === undefined) throw new Error("invariant: a view for each sign");
    const { view, answered } = seen;
    const { own } = view;
    if (own === undefined || own.record === null || tracked?.over || tracked?.lease.gone) {
      if (tracked !== undefined) this.#parts.book.forget(tracked, own === undefined);
      return { kind: "gone" };
    }
    this.#keepCapacity(view, calledAt);
    const { record } = own;
    const granted = view.queue.holds(own.key);
    const leaseMs = granted ? (sign.leaseMs ?? record.leaseMs) : waiterLeaseMs(record.leaseMs);
    const ours = tracked !== undefined && tracked.lease.id === own.lease;
    if (ours && (!granted || (!record.fixed && leaseMs <= tracked.lease.ttlMs))) {
      return this.#stands(record, tracked, view, answered, calledAt, leaseMs);
    }
    return this.#moved({ ref: sign, own, record, view, answered, calledAt, leaseMs });
  }

  /** A claim of another client's, or one that is to last longer, or for a fixed time from now: it gets another lease. */
  async #moved(move: Move): Promise<Granted | Queued | Gone> {
    const { own, leaseMs } = move;
    const now = this.#parts.book.get(move.ref)?.lease;
    let leftMs = now?.id === own.lease ? now.ttlMs : Infinity;
    // A lease end never moves back, and etcd says in whole seconds where it is.
    if (leftMs > leaseMs) {
      const { TTL } = await this.#parts.store.client.call("leaseTimeToLive", { ID: own.lease });
      if (TTL < 0) return { kind: "gone" };
      leftMs = (TTL + 1) * 1000;
    }
    return this.#moveFor(Math.max(leaseMs, leftMs), move).catch((cause: unknown) => {
      if (!isOutOfSpace(cause)) throw cause;
      return this.#stays(move, cause);
    });
  }

  /** Nothing can be written, but what stands can be kept alive: a claim of ours goes on under the lease that it has. */
  #stays(
    { ref, own, record, view, answered, calledAt, leaseMs }: Move,
    cause: EtcdError,
  ): Promise<Granted | Queued | Gone> {
    const tracked = this.#parts.book.get(ref);
    if (tracked?.lease.id !== own.lease || !isFit(record, tracked.lease) || isFixed(tracked)) throw cause;
    return this.#stands(record, tracked, view, answered, calledAt, Math.min(leaseMs, tracked.lease.ttlMs));
  }

  async #moveFor(lastsMs: number, move: Move): Promise<Granted | Queued | Gone> {
    const { book, leases, store } = this.#parts;
    const { ref, own, record, view, calledAt, leaseMs } = move;
    const lease = await (record.fixed ? leases.alone(lastsMs) : leases.of(lastsMs));
    const put: RequestOp = { request_put: { key: own.key, ignore_value: true, lease: lease.id } };
    const compare = [createdAt(own.key, own.token), underLease(own.key, own.lease)];
    const moving = store.txn({ compare, success: [put] }).catch((cause: unknown) => {
      if (isLeaseGone(cause)) leases.lost(lease);
      throw cause;
    });
    const beat = lease.provenUntil < calledAt + leaseMs ? leases.beat(lease, calledAt) : undefined;
    const [moved] = await Promise.all([moving, beat]);
    const before = book.get(ref);
    const over = !moved.response.succeeded || before?.over === true;
    if (over && lease.alone) leases.end(lease.id);
    if (!moved.response.succeeded) throw new Error("the claim changed hands meanwhile");
    if (before?.over) return { kind: "gone" };
    if (before !== undefined) book.move(before, lease, calledAt);
    const tracked = before ?? book.track(ref, lease, calledAt, own.key);
    const { revision } = move.answered;
    return this.#stands(record, tracked, view, { ...moved, revision }, calledAt, leaseMs);
  }

  /** A claim that was sent again: answered as it stands, which is no heartbeat. */
  async known(ref: ClaimRef, view: View, answered: Answered, calledAt: number): Promise<ClaimAnswer> {
    const { own, queue } = view;
    const { store, book } = this.#parts;
    if (own === undefined || own.record === null) return { kind: "gone" };
    const tracked = book.get(ref);
    const { record } = own;
    const granted = queue.holds(own.key);
    if (tracked !== undefined && tracked.lease.id === own.lease) {
      if (!granted || isFit(record, tracked.lease)) {
        const leaseMs = granted ? 0 : waiterLeaseMs(record.leaseMs);
        return this.#stands(record, tracked, view, answered, calledAt, leaseMs);
      }
      // Granted since, under a waiter's lease: it keeps the time that is left of it.
      const leaseMs = tracked.leftMs(calledAt);
      if (leaseMs <= 0) throw new Error("the lease was not confirmed by the quorum");
      return this.#moveFor(leaseMs, { ref, own, record, view, answered, calledAt, leaseMs });
    }
    if (!granted) return queue.queued(own.key);
    const { TTL, header } = await store.client.call("leaseTimeToLive", { ID: own.lease });
    if (TTL < 0) return { kind: "gone" };
    // As with a keep-alive: what a leader says counts if the quorum answered in its term.
    if (header.raft_term !== answered.term) throw new Error(`the leader changed while "${ref.name}" was looked at`);
    const leaseMs = TTL * 1000;
    if (leaseMs === 0 || record.fixed) {
      return { kind: "granted", leftMs: leaseMs, ...queue.fence(own.token, record.exact === true) };
    }
    // Others may keep the lease alive that it shares, and its own client takes it out before that ends: not from under ours.
    return this.#moveFor(leaseMs, { ref, own, record, view, answered, calledAt, leaseMs });
  }

  /** A claim that was just put in its place, under the lease of a waiter unless it seemed to fit. */
  async placed(
    claim: ClaimRequest,
    tracked: Tracked,
    view: View,
    answered: Answered,
    calledAt: number,
  ): Promise<ClaimAnswer> {
    const { own, queue } = view;
    if (own === undefined) throw new Error("invariant: a claim that was placed is there");
    const granted = queue.holds(own.key);
    const leaseMs = granted ? claim.leaseMs : waiterLeaseMs(claim.leaseMs);
    // It seemed to fit, and others came first: should it die while it waits, it must not be in the way for all of its lease.
    if (!granted && claim.leaseMs > leaseMs && tracked.lease.ttlMs > leaseMs) {
      return this.#moveFor(leaseMs, { ref: claim, own, record: claim, view, answered, calledAt, leaseMs });
    }
    if (!granted || (isFit(claim, tracked.lease) && leaseMs <= tracked.lease.ttlMs)) {
      return this.#stands(claim, tracked, view, answered, calledAt, leaseMs);
    }
    return this.#moved({ ref: claim, own, record: claim, view, answered, calledAt, leaseMs });
  }

  async #stands(
    record: Standing,
    tracked: Tracked,
    view: View,
    answered: Answered,
    calledAt: number,
    leaseMs: number,
  ): Promise<Granted | Queued | Gone> {
    const { book } = this.#parts;
    const { own, queue } = view;
    if (own === undefined) throw new Error("invariant: what stands is there");
    const granted = queue.holds(own.key);
    const waited = tracked.token > 0 && !tracked.granted;
    tracked.exact = record.exact === true;
    book.stands(tracked, own.token, granted, answered.revision);
    if (granted && waited) book.passOn(tracked, queue, record);
    if (!granted && tracked.unwatchTarget === null) {
      book.watch(tracked, targetOf(queue, own, view.before), answered.revision);
    }
    if (granted) {
      const leftMs = await this.leftMs(tracked, answered, calledAt, leaseMs);
      if (tracked.over) return { kind: "gone" };
      return { kind: "granted", leftMs, ...queue.fence(own.token, record.exact === true) };
    }
    // A waiter's deadline counts from this very call, or from the first when it was sent again: all of it has to be sure.
    const until = Math.min(calledAt + leaseMs, tracked.endsAt);
    await this.#confirm(tracked.lease, answered, calledAt, until);
    if (tracked.lease.provenUntil < until) throw new Error("the heartbeat was not confirmed by the quorum");
    return tracked.over ? { kind: "gone" } : queue.queued(own.key);
  }

  /** How long a grant surely lasts, counted from the call. */
  async leftMs(tracked: Tracked, proof: Proof, calledAt: number, leaseMs: number): Promise<number> {
    const { lease } = tracked;
    await this.#confirm(lease, proof, calledAt, calledAt + leaseMs * SURE_PART);
    const leftMs = Math.min(tracked.leftMs(calledAt), lease.ttlMs);
    if (leftMs <= 0 || lease.gone) throw new Error("the lease was not confirmed by the quorum");
    return leftMs;
  }

  /** With one more keep-alive if it is not sure yet that the lease lasts until then. */
  async #confirm(lease: Lease, proof: Proof, calledAt: number, until: number): Promise<void> {
    lease.prove(proof);
    if (lease.provenUntil >= until) return;
    await this.#parts.leases.beat(lease, calledAt);
    lease.prove(proof);
  }

  #keepCapacity({ changed: { to, lease } }: View, now: number): void {
    const beats = this.#capacityBeats;
    if (to === null || now - (beats.get(lease) ?? -Infinity) < CAPACITY_BEAT_MS) return;
    // Of records that are gone by now nothing is kept.
    for (const [other, at] of beats) if (now - at >= CAPACITY_BEAT_MS) beats.delete(other);
    beats.set(lease, now);
    this.#parts.store.client.keepAlive(lease).catch(() => beats.delete(lease));
  }
}

/** Where a claim is watched already, nobody has to know who stands before it. */
export function wantOf({ name, id }: ClaimRef, tracked: Tracked | undefined): Want {
  const waits = tracked !== undefined && !tracked.granted && tracked.unwatchTarget === null && tracked.token > 0;
  const { key, limit = Infinity, token } = tracked ?? {};
  return { ref: { name, id }, key, limit, token: waits ? token : undefined };
}

/** A hold of fixed length must not stand where the heartbeats of others make it last. */
function isFit({ fixed }: Standing, { alone }: Lease): boolean {
  return fixed !== true || alone;
}

/** It holds for as long as was said, and a keep-alive would change that. */
function isFixed({ granted, lease }: Tracked): boolean {
  return granted && lease.alone;
}

/** A claim that is to stand under another lease, as it was seen. */
type Move = {
  readonly ref: ClaimRef;
  readonly own: Entry;
  readonly record: Standing;
  readonly view: View;
  readonly answered: Answered;
  readonly calledAt: number;
  readonly leaseMs: number;
};

type Standing = Pick<Record, "units" | "exact" | "fixed">;
