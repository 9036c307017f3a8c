import type { ClaimRef, ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import { forgetCapacity } from "./capacity.js";
import type { Tracked } from "./claims.js";
import { isLeaseGone, isOutOfSpace } from "./driver.js";
import { idOf } from "./entries.js";
import type { KeyValue, RequestOp } from "./messages.js";
import type { Parts } from "./parts.js";
import { createdAt, get, put, remove } from "./requests.js";
import { found } from "./transactions.js";

/**
 * The way out. Keys are used again, and a request may arrive late: so nothing is removed but the very claim that was meant,
 * known by the revision that created it.
 */
export async function release(parts: Parts, { name, id, tombstone }: ReleaseRequest): Promise<ReleaseAnswer> {
  const { book, keys, leases } = parts;
  const tracked = book.get({ name, id });
  if (tracked !== undefined) book.quiet(tracked);
  const leave = async (marked: boolean): Promise<ReleaseAnswer> => {
    const mark = marked ? [put(keys.mark(name, id), "", (await leases.marks()).id)] : [];
    if (!tracked?.certain) return leaveFound(parts, { name, id }, mark);
    const left = await leaveKnown(parts, tracked, mark);
    if (left === "released" || tracked.place.slot !== null) return left;
    // At a key that is not this engine's own somebody else may have claimed anew with the same id. The mark is set by now.
    return leaveFound(parts, { name, id }, [], left);
  };
  try {
    return await leave(tombstone !== "never");
  } catch (cause) {
    // With no space left nothing may be written, no late copy of the claim either: then it needs no mark.
    if (isOutOfSpace(cause)) return leave(false);
    if (!isLeaseGone(cause)) throw cause;
    leases.marksLost();
    return leave(tombstone !== "never");
  }
}

/** One transaction: it is certain where it stands, and since when. */
async function leaveKnown(parts: Parts, tracked: Tracked, mark: readonly RequestOp[]): Promise<ReleaseAnswer> {
  const { book, keys, store } = parts;
  const { name, id, key, token } = tracked;
  const capacity = get(keys.capacity(name));
  const answered = await store.txn({
    compare: [createdAt(key, token)],
    success: [capacity, remove(key), ...mark],
    // A mark that was there before: somebody else released it.
    failure: [capacity, get(keys.mark(name, id)), ...mark],
  });
  book.forget(tracked, true);
  if (found(answered, 0).length > 0) await forgetCapacity(parts, name);
  return answered.response.succeeded ? "released" : goneBy(found(answered, 1));
}

/**
 * A claim of somebody else's, or one that was never answered: first the mark, after which no copy of it can arrive, then a look.
 * `gone`: what is said if it is not there, where that is known.
 */
async function leaveFound(
  parts: Parts,
  ref: ClaimRef,
  mark: readonly RequestOp[],
  gone?: "gone" | "revoked",
): Promise<ReleaseAnswer> {
  const { book, keys, store, views } = parts;
  const marked = get(keys.mark(ref.name, ref.id));
  const before = mark.length === 0 ? gone : goneBy(found(await store.txn({ success: [marked, ...mark] }), 0));
  const { queue, changed } = (await views.one({ ref, limit: Infinity })).view;
  const [from] = keys.claims(ref.name);
  let left = false;
  for (const { key, token } of queue.entries.filter((entry) => idOf(entry, from) === ref.id)) {
    const { response } = await store.txn({ compare: [createdAt(key, token)], success: [remove(key)] });
    left ||= response.succeeded;
  }
  const tracked = book.get(ref);
  if (tracked !== undefined) book.forget(tracked, true);
  if (changed.to !== null) await forgetCapacity(parts, ref.name);
  if (left) return "released";
  return before ?? goneBy(found(await store.txn({ success: [marked] }), 0));
}

function goneBy(marks: readonly KeyValue[]): "gone" | "revoked" {
  return marks.length > 0 ? "revoked" : "gone";
}
