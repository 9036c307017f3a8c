// Beyond the common files of an engine: the capacity of a busy name is kept in a record beside its claims.

import type { CapacityAnswer } from "../../core/engine.js";
import { EngineRefusedError } from "../../core/errors.js";
import { capacityChange, capacityText } from "../../queue/capacity.js";
import { type Entry, EtcdQueue, entryOf } from "./entries.js";
import type { Leases } from "./leases.js";
import type { RequestOp } from "./messages.js";
import { absent, changedAt, createdAt, get, oldest, put, quietSince, remove } from "./requests.js";
import { changedOf } from "./snapshots.js";
import { found, OPERATIONS_MAX, type Store } from "./store.js";

/** A day and an hour: longer than any lease, and kept alive by every claim of the name. It is gone when the name is idle. */
const RECORD_SECONDS = 25 * 60 * 60;

const TRIES_MAX = 50;

/** One transaction is certain of so many holders, beside its two other compares, and drops so many waiters, beside its two other writes. */
const HOLDERS_MAX = OPERATIONS_MAX - 3;
const DROPS_MAX = OPERATIONS_MAX - 3;

/** The capacity of a busy name is changed in a record beside its claims. */
export async function setCapacity(
  store: Store,
  leases: Leases,
  { name, from, to }: { readonly name: string; readonly from: number; readonly to: number },
): Promise<CapacityAnswer> {
  const [first, end] = store.keys.claims(name);
  const record = store.keys.capacity(name);
  for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
    const seen = await store.txn({ success: [get(record), oldest(first, end, Infinity)] });
    const changed = changedOf(found(seen, 0)[0]);
    const queue = new EtcdQueue(
      found(seen, 1).map((kv) => entryOf(kv, first)),
      changed.to,
    );
    const change = capacityChange(queue, from, to);
    if ("kind" in change) {
      if (queue.entries.length === 0 && changed.to !== null) await forgetCapacity(store, leases, name);
      return change;
    }
    const dropped = change.drops.slice(0, DROPS_MAX);
    const drops = dropped.map(({ key }) => remove(key));
    if (!change.write) {
      const these = dropped.map(({ key, token }) => createdAt(key, token));
      await store.txn({ compare: [changedAt(record, changed.revision), ...these], success: drops });
      continue;
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
      compare: [changedAt(record, changed.revision), quietSince(first, end, seen.revision), ...holders],
      success: [
        put(record, capacityText({ capacity: to, heldUpTo }), lease),
        ...(next === undefined ? [] : [touch(next)]),
        ...drops,
      ],
    });
    if (response.succeeded && drops.length === change.drops.length) return { kind: "set" };
    if (!response.succeeded && changed.to === null) leases.end(lease);
  }
  throw new Error("others came first, again and again");
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
