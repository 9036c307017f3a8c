import type { Answer, Claim } from "../../core/engine.js";
import { isRefusal } from "../../core/errors.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Tracked } from "./book.js";
import { endLease } from "./capacity.js";
import { isLeaseGone } from "./client.js";
import { absent, changedAt, newest, put, quietSince, type RequestOp, remove, type TxnRequest } from "./messages.js";
import type { Parts } from "./parts.js";
import { entryOf, limitOf, recordText } from "./queue.js";
import { translated } from "./refusals.js";
import { type Renewing, SURE_PART } from "./renewing.js";
import { type Answered, found } from "./store.js";
import { Sight, type View, viewOf } from "./view.js";

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

  async claim(claim: Claim): Promise<Answer> {
    const { keys, book, leases, store } = this.#parts;
    const calledAt = store.clock.now();
    if (book.get(keys.claim(claim.name, claim.id)) !== undefined) return this.#again(claim, calledAt);
    for (let tries = 1; ; tries += 1) {
      const lease = await leases.of(claim.leaseMs);
      const sure = lease.provenUntil - calledAt >= claim.leaseMs * SURE_PART;
      const beat = sure ? undefined : leases.beat(lease, calledAt);
      const tracked = book.track(claim, lease, calledAt);
      tracked.limit = limitOf(claim.capacity);
      try {
        const answer = await this.#take(claim, tracked, calledAt, beat);
        if (answer.kind !== "granted" && answer.kind !== "queued") book.forget(tracked);
        return answer;
      } catch (cause) {
        const gone = isLeaseGone(cause);
        // Nothing was done. Otherwise it may stand, and stays written down.
        if (gone || isRefusal(translated(cause))) book.forget(tracked);
        if (!gone || tries > 1) throw cause;
        leases.lost(tracked.lease);
      }
    }
  }

  /** Sent again: what stands, or may still be on its way, stays written down as it is. */
  async #again(claim: Claim, calledAt: number): Promise<Answer> {
    const { keys, store, book } = this.#parts;
    const sight = new Sight(keys);
    const places = sight.see(claim, Infinity);
    const answered = await store.txn({ success: sight.operations });
    const view = viewOf(answered, places);
    const known = book.get(keys.claim(claim.name, claim.id));
    if (view.marked || known?.over) return { kind: "gone" };
    if (view.own !== undefined) return this.#renewing.known(claim, view, answered, calledAt);
    // It never arrived, or has ended: its place is to be taken as if for the first time.
    if (known !== undefined) book.forget(known);
    return this.claim(claim);
  }

  async #take(claim: Claim, tracked: Tracked, calledAt: number, beat: Promise<void> | undefined): Promise<Answer> {
    const { keys, store } = this.#parts;
    const [from, to] = keys.claims(claim.name);
    const sight = new Sight(keys);
    const places = sight.see(claim, tracked.limit);
    const failure = sight.operations;
    const place = put(tracked.key, recordText(claim), tracked.lease.id);
    const compare = [absent(from, to), absent(keys.mark(claim.name, claim.id)), absent(keys.capacity(claim.name))];
    let [answered] = await Promise.all([store.txn({ compare, success: [place], failure }), beat]);
    for (let tries = 1; !answered.response.succeeded; tries += 1) {
      if (tries > TRIES_MAX) throw new Error("others came first, again and again");
      const view = viewOf(answered, places);
      const { queue } = view;
      if (view.marked) return { kind: "gone" };
      if (view.own !== undefined) return this.#again(claim, calledAt);
      const empty = queue.entries.length === 0;
      if (!empty && queue.capacity !== null && queue.capacity !== claim.capacity) {
        return { kind: "mismatch", capacity: queue.capacity };
      }
      if (claim.wait && !empty) return this.#join(claim, tracked, view, calledAt);
      if (!empty && !queue.fits(claim.units)) return { kind: "busy", ...queue.holder() };
      answered = await store.txn({ ...this.#enter(claim, place, view, answered), failure });
      if (answered.response.succeeded && empty && view.changed.to !== null) endLease(this.#parts, view.changed.lease);
    }
    return this.#granted(claim, tracked, answered, calledAt);
  }

  /** Take what was seen to be free, if nobody came since. */
  #enter(claim: Claim, place: RequestOp, { queue, changed }: View, { revision }: Answered): TxnRequest {
    const { keys } = this.#parts;
    const [from, to] = keys.claims(claim.name);
    const [mark, capacity] = [keys.mark(claim.name, claim.id), keys.capacity(claim.name)];
    // An idle name forgets its capacity.
    if (queue.entries.length === 0) {
      return { compare: [absent(from, to), absent(mark)], success: [place, remove(capacity)] };
    }
    const compare = [quietSince(from, to, revision), absent(mark), changedAt(capacity, changed.revision)];
    const sight = new Sight(keys, [place]);
    sight.see(claim, limitOf(claim.capacity));
    return { compare, success: sight.operations };
  }

  /** Stand at the end of the queue, which may be the front by now. */
  async #join(claim: Claim, tracked: Tracked, seen: View, calledAt: number): Promise<Answer> {
    const { keys, store, book, leases } = this.#parts;
    if (!seen.queue.fits(claim.units)) {
      book.move(tracked, await leases.of(waiterLeaseMs(claim.leaseMs)), calledAt);
    }
    const last = newest(...keys.claims(claim.name));
    const sight = new Sight(keys, [last, put(tracked.key, recordText(claim), tracked.lease.id)]);
    const places = sight.see(claim, tracked.limit);
    const compare = [absent(tracked.key), absent(keys.mark(claim.name, claim.id))];
    const answered = await store.txn({ compare, success: sight.operations });
    if (!answered.response.succeeded) return this.#again(claim, calledAt);
    const view = viewOf(answered, places);
    const { capacity } = view.queue;
    // The name fell idle and was taken for something else between the two transactions.
    if (capacity !== null && capacity !== claim.capacity) {
      await store.txn({ success: [remove(tracked.key)] });
      return { kind: "mismatch", capacity };
    }
    const before = found(answered, 0).map(entryOf)[0];
    return this.#renewing.placed(claim, tracked, { ...view, before }, answered, calledAt);
  }

  async #granted(claim: Claim, tracked: Tracked, answered: Answered, calledAt: number): Promise<Answer> {
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
