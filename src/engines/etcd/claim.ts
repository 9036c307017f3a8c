import type { ClaimAnswer, ClaimRequest } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Tracked } from "./claims.js";
import { isLeaseGone } from "./driver.js";
import { limitOf, recordText } from "./entries.js";
import { translated } from "./errors.js";
import type { RequestOp, TxnRequest } from "./messages.js";
import type { Parts } from "./parts.js";
import { type Renewing, SURE_PART } from "./renew.js";
import { absent, changedAt, createdAt, get, oldest, put, quietSince, remove } from "./requests.js";
import type { View } from "./snapshots.js";
import { type Answered, found } from "./transactions.js";

/** Others may come between looking and taking; each time one of them got on. */
const TRIES_MAX = 50;

/** Taking a place. A free name is taken in one transaction; a busy one is looked at first. */
export class Claiming {
  readonly #parts: Parts;
  readonly #renewing: Renewing;

  constructor(parts: Parts, renewing: Renewing) {
    this.#parts = parts;
    this.#renewing = renewing;
  }

  async claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    const { book, store } = this.#parts;
    const calledAt = store.clock.now();
    return book.get(claim) === undefined ? this.#first(claim, calledAt) : this.#again(claim, calledAt);
  }

  async #first(claim: ClaimRequest, calledAt: number): Promise<ClaimAnswer> {
    const { keys, book, leases } = this.#parts;
    // Whoever else asks with the same id must find it there.
    const key = claim.chosen ? keys.claim(claim.name, claim.id) : undefined;
    for (let tries = 1; ; tries += 1) {
      const lease = await (claim.fixed ? leases.alone(claim.leaseMs) : leases.of(claim.leaseMs));
      const sure = lease.provenUntil - calledAt >= claim.leaseMs * SURE_PART;
      const beat = sure ? undefined : leases.beat(lease, calledAt);
      const tracked = book.track(claim, lease, calledAt, key);
      tracked.limit = limitOf(claim.capacity);
      try {
        const answer = await this.#take(claim, tracked, calledAt, beat);
        if (answer.kind !== "granted" && answer.kind !== "queued") book.forget(tracked, true);
        return answer;
      } catch (cause) {
        if (isLeaseGone(cause) && tries === 1) {
          leases.lost(tracked.lease);
          continue;
        }
        // Otherwise it may stand, and stays written down.
        if (didNothing(cause)) book.forget(tracked, true);
        throw cause;
      }
    }
  }

  /** Sent again: what stands, or may still be on its way, stays written down as it is. */
  async #again(claim: ClaimRequest, calledAt: number): Promise<ClaimAnswer> {
    const { keys, store, book, views } = this.#parts;
    // First the mark: it may be set between the two looks, and then the second finds nothing, or what is about to leave.
    const marked = found(await store.txn({ success: [get(keys.mark(claim.name, claim.id))] }), 0).length > 0;
    const { answered, view } = await views.one({ ref: claim, limit: Infinity });
    const known = book.get(claim);
    if (marked || known?.over) return { kind: "gone" };
    if (view.own !== undefined) return this.#renewing.known(claim, view, answered, calledAt);
    if (known !== undefined && view.queue.entries.some(({ key }) => key === known.key)) {
      book.forget(known, false);
      throw new Error("somebody else wrote at this claim's key");
    }
    // It never arrived, or has ended: its place is to be taken as if for the first time.
    return this.#first(claim, calledAt);
  }

  /** Puts it in its place. Until that is answered a copy may arrive at any time. */
  async #put(tracked: Tracked, request: TxnRequest): Promise<Answered> {
    tracked.loose += 1;
    try {
      const answered = await this.#parts.store.txn(request);
      tracked.loose -= 1;
      return answered;
    } catch (cause) {
      if (didNothing(cause)) tracked.loose -= 1;
      throw cause;
    }
  }

  async #take(
    claim: ClaimRequest,
    tracked: Tracked,
    calledAt: number,
    beat: Promise<void> | undefined,
  ): Promise<ClaimAnswer> {
    const { keys, views, leases } = this.#parts;
    const [from, to] = keys.claims(claim.name);
    const [mark, capacity] = [keys.mark(claim.name, claim.id), keys.capacity(claim.name)];
    // Another claim of ours stands there: it is not free. Asking whether it is costs etcd a look at the whole queue.
    if (claim.wait && this.#parts.book.isBusy(tracked)) {
      await beat;
      return this.#join(claim, tracked, calledAt, true);
    }
    const place = put(tracked.key, recordText(claim), tracked.lease.id);
    // Whatever a transaction that writes looks at holds up all others: a queue, which may be long, is looked at apart.
    const failure = [get(mark), get(tracked.key)];
    const compare = [absent(from, to), absent(mark), absent(capacity)];
    let answered = await this.#put(tracked, { compare, success: [place], failure });
    // It was sent before, and never rejects.
    if (beat !== undefined) await beat;
    for (let tries = 1; !answered.response.succeeded; tries += 1) {
      if (tries > TRIES_MAX) throw new Error("others came first, again and again");
      if (found(answered, 0).length > 0) return { kind: "gone" };
      if (found(answered, 1).length > 0) return this.#again(claim, calledAt);
      const { view, answered: looked } = await views.one({ ref: claim, key: tracked.key, limit: tracked.limit });
      const { queue, changed } = view;
      const empty = queue.entries.length === 0;
      if (!empty && queue.capacity !== null && queue.capacity !== claim.capacity) {
        return { kind: "mismatch", capacity: queue.capacity };
      }
      if (claim.wait && !empty) return this.#join(claim, tracked, calledAt, !queue.fits(claim.units));
      if (!empty && !queue.fits(claim.units)) return { kind: "busy", ...queue.holder() };
      answered = await this.#put(tracked, { ...this.#enter(claim, place, view, looked.revision), failure });
      if (answered.response.succeeded && empty && changed.to !== null) leases.end(changed.lease);
    }
    return this.#granted(claim, tracked, answered, calledAt);
  }

  /** Take what was seen to be free, if nobody came since. */
  #enter(claim: ClaimRequest, place: RequestOp, { queue, changed }: View, revision: number): TxnRequest {
    const { keys } = this.#parts;
    const [from, to] = keys.claims(claim.name);
    const [mark, capacity] = [keys.mark(claim.name, claim.id), keys.capacity(claim.name)];
    // An idle name forgets its capacity.
    if (queue.entries.length === 0) {
      return { compare: [absent(from, to), absent(mark)], success: [place, remove(capacity)] };
    }
    const compare = [quietSince(from, to, revision), absent(mark), changedAt(capacity, changed.revision)];
    return { compare, success: [place, get(capacity), oldest(from, to, limitOf(claim.capacity))] };
  }

  /** Stand at the end of the queue, and see where that is: perhaps at the front by now. */
  async #join(claim: ClaimRequest, tracked: Tracked, calledAt: number, willWait: boolean): Promise<ClaimAnswer> {
    const { keys, store, book, leases, views } = this.#parts;
    if (willWait) {
      book.move(tracked, await leases.of(waiterLeaseMs(claim.leaseMs)), calledAt);
    }
    const joined = await this.#put(tracked, {
      compare: [absent(tracked.key), absent(keys.mark(claim.name, claim.id))],
      success: [put(tracked.key, recordText(claim), tracked.lease.id)],
    });
    if (!joined.response.succeeded) return this.#again(claim, calledAt);
    const want = { ref: claim, key: tracked.key, limit: tracked.limit, token: joined.revision };
    const { view, answered } = await views.one(want);
    const { capacity } = view.queue;
    // The name fell idle and was taken for something else between the two transactions.
    if (capacity !== null && capacity !== claim.capacity) {
      await store.txn({ compare: [createdAt(tracked.key, joined.revision)], success: [remove(tracked.key)] });
      // Or only idle: then the capacity is that of nobody.
      if (view.queue.entries.length === 1) throw new Error("the name fell idle meanwhile");
      return { kind: "mismatch", capacity };
    }
    if (view.own === undefined) return { kind: "gone" };
    return this.#renewing.placed(claim, tracked, view, answered, calledAt);
  }

  async #granted(claim: ClaimRequest, tracked: Tracked, answered: Answered, calledAt: number): Promise<ClaimAnswer> {
    const { revision } = answered;
    // Where others held already, the transaction looked after it had entered.
    const holders = found(answered, 2).map((kv) => kv.create_revision);
    const floor = holders[0] ?? revision;
    const live = claim.exact ? { live: holders.length > 0 ? holders : [revision] } : {};
    this.#parts.book.stands(tracked, revision, true, revision);
    const leftMs = await this.#renewing.leftMs(tracked, answered, calledAt, claim.leaseMs);
    return { kind: "granted", leftMs, token: revision, floor, ...live };
  }
}

/** The store refused, and a late copy of this very call would be refused too. */
function didNothing(cause: unknown): boolean {
  return isLeaseGone(cause) || isRefusal(translated(cause));
}
