import type { ClaimRef, ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import { forgetCapacity } from "./capacity.js";
import type { Claims, EtcdClaim } from "./claims.js";
import { isLeaseGone, isOutOfSpace } from "./errors.js";
import type { KeyValue, RequestOp } from "./messages.js";
import { createdAt, get, put, remove } from "./requests.js";
import type { Snapshots } from "./snapshots.js";
import { found } from "./store.js";

/**
 * The way out. Keys are used again, and a request may arrive late: so nothing is removed but the very claim that was meant,
 * known by the revision that created it.
 */
export async function release(
  claims: Claims,
  snapshots: Snapshots,
  { name, id, tombstone }: ReleaseRequest,
): Promise<ReleaseAnswer> {
  const { store, leases } = claims;
  const local = claims.get({ name, id });
  if (local !== undefined) claims.finish(local);
  const leave = async (buries: boolean): Promise<ReleaseAnswer> => {
    const bury = buries ? [put(store.keys.tombstone(name, id), "", (await leases.tombstones()).id)] : [];
    if (!local?.certain) return leaveFound(claims, snapshots, { name, id }, bury);
    const left = await leaveKnown(claims, local, bury);
    if (left === "released" || local.slot !== null) return left;
    // At a key that is not this engine's own somebody else may have claimed anew with the same id. The tombstone is set by now.
    return leaveFound(claims, snapshots, { name, id }, [], left);
  };
  try {
    return await leave(tombstone !== "never");
  } catch (cause) {
    // With no space left nothing may be written, no late copy of the claim either: then it needs no tombstone.
    if (isOutOfSpace(cause)) return leave(false);
    if (!isLeaseGone(cause)) throw cause;
    leases.tombstonesLost();
    return leave(tombstone !== "never");
  }
}

/** One transaction: it is certain where it is, and since when. */
async function leaveKnown(claims: Claims, local: EtcdClaim, bury: readonly RequestOp[]): Promise<ReleaseAnswer> {
  const { store, leases } = claims;
  const { name, id, key, token } = local;
  const capacity = get(store.keys.capacity(name));
  const answered = await store.txn({
    compare: [createdAt(key, token)],
    success: [capacity, remove(key), ...bury],
    // A tombstone that was there before: somebody else released it.
    failure: [capacity, get(store.keys.tombstone(name, id)), ...bury],
  });
  claims.forget(local, true);
  if (found(answered, 0).length > 0) await forgetCapacity(store, leases, name);
  return answered.response.succeeded ? "released" : goneBy(found(answered, 1));
}

/**
 * A claim of somebody else's, or one that was never answered: first the tombstone, after which no copy of it can arrive, then the queue.
 * `gone`: what is said if it is not there, where that is known.
 */
async function leaveFound(
  claims: Claims,
  snapshots: Snapshots,
  ref: ClaimRef,
  bury: readonly RequestOp[],
  gone?: "gone" | "revoked",
): Promise<ReleaseAnswer> {
  const { store, leases } = claims;
  const buried = get(store.keys.tombstone(ref.name, ref.id));
  const before = bury.length === 0 ? gone : goneBy(found(await store.txn({ success: [buried, ...bury] }), 0));
  const { queue, changed } = await snapshots.one({ ref, limit: Infinity });
  let left = false;
  for (const { key, token } of queue.entries.filter(({ id }) => id === ref.id)) {
    const { response } = await store.txn({ compare: [createdAt(key, token)], success: [remove(key)] });
    left ||= response.succeeded;
  }
  const local = claims.get(ref);
  if (local !== undefined) claims.forget(local, true);
  if (changed.to !== null) await forgetCapacity(store, leases, ref.name);
  if (left) return "released";
  return before ?? goneBy(found(await store.txn({ success: [buried] }), 0));
}

function goneBy(tombstones: readonly KeyValue[]): "gone" | "revoked" {
  return tombstones.length > 0 ? "revoked" : "gone";
}
