// Beyond the common files of an engine: the capacity of a busy name is kept in a record beside its claims.

import { EngineRefusedError } from "../../core/errors.js";
import { type CapacityChange, capacityText } from "../../queue/capacity.js";
import type { Entry } from "./entries.js";
import type { Leases } from "./leases.js";
import type { RequestOp } from "./messages.js";
import { absent, changedAt, createdAt, get, put, quietSince, remove } from "./requests.js";
import { type NameSeen, readName } from "./snapshots.js";
import { found, OPERATIONS_MAX, type Store } from "./store.js";

/** A day and an hour: longer than any lease, and kept alive by every claim of the name. It is gone when the name is idle. */
export const RECORD_SECONDS = 25 * 60 * 60;

/** One transaction is certain of so many holders, beside its two other compares, and drops so many waiters, beside its two other writes. */
const HOLDERS_MAX = OPERATIONS_MAX - 3;
const DROPS_MAX = OPERATIONS_MAX - 3;

/** All of a name. An idle one forgets its capacity. */
export async function readNow(store: Store, leases: Leases, name: string): Promise<NameSeen> {
  const seen = await readName(store, name);
  if (seen.queue.entries.length === 0 && seen.changed.to !== null) await forgetCapacity(store, leases, name);
  return seen;
}

/** Writes the record, and drops as many waiters as one transaction can. False when there is more to do, or others came first. */
export async function changeCapacity(
  store: Store,
  leases: Leases,
  { name, to }: { readonly name: string; readonly to: number },
  { queue, changed, answered }: NameSeen,
  change: CapacityChange<Entry>,
): Promise<boolean> {
  const [first, end] = store.keys.claims(name);
  const record = store.keys.capacity(name);
  const dropped = change.drops.slice(0, DROPS_MAX);
  const drops = dropped.map(({ key }) => remove(key));
  if (!change.write) {
    const these = dropped.map(({ key, token }) => createdAt(key, token));
    await store.txn({ compare: [changedAt(record, changed.revision), ...these], success: drops });
    return false;
  }
  // Whoever holds goes on holding, although it may not fit any more: so it must be certain who that is.
  const shrinks = to < queue.limit;
  if (shrinks && queue.holders.length > HOLDERS_MAX) throw tooMany(name, queue.holders.length);
  const heldUpTo = shrinks ? (queue.holders.at(-1)?.token ?? null) : (changed.to?.heldUpTo ?? null);
  const next = queue.waiters.find((entry) => !change.drops.includes(entry));
  const lease = changed.to === null ? (await leases.grant(RECORD_SECONDS)).id : changed.lease;
  const holders = shrinks ? queue.holders.map(({ key, token }) => createdAt(key, token)) : [];
  const { response } = await store.txn({
    // Quiet: so no key that is dropped belongs to another claim by now.
    compare: [changedAt(record, changed.revision), quietSince(first, end, answered.revision), ...holders],
    success: [
      put(record, capacityText({ capacity: to, heldUpTo }), lease),
      ...(next === undefined ? [] : [touch(next)]),
      ...drops,
    ],
  });
  if (!response.succeeded && changed.to === null) leases.end(lease);
  return response.succeeded && drops.length === change.drops.length;
}

/** Its owner watches it, and looks up whether its turn has come. */
function touch({ key }: Entry): RequestOp {
  return { request_put: { key, ignore_value: true, ignore_lease: true } };
}

/** An idle name leaves nothing behind. */
export async function forgetCapacity(store: Store, leases: Leases, name: string): Promise<void> {
  const record = store.keys.capacity(name);
  const idle = [absent(...store.keys.claims(name))];
  const answered = await store.txn({ compare: idle, success: [get(record), remove(record)] });
  const [kv] = found(answered, 0);
  if (kv !== undefined) leases.end(kv.lease);
}

function tooMany(name: string, count: number): EngineRefusedError {
  const cause = new Error(`"${name}" has ${count} holders, and one transaction can compare ${HOLDERS_MAX}`);
  return new EngineRefusedError("etcd", "Lower the capacity when fewer hold it.", cause);
}
