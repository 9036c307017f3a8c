import type { CapacityAnswer } from "../../core/engine.js";
import { EngineRefusedError } from "../../core/errors.js";
import { type Entry, entryOf, Queue } from "./entries.js";
import type { RequestOp } from "./messages.js";
import type { Parts } from "./parts.js";
import { absent, changedAt, createdAt, get, oldest, put, quietSince, remove } from "./requests.js";
import { changedOf } from "./snapshots.js";
import { found, OPERATIONS_MAX } from "./transactions.js";

/** A day and an hour: longer than any lease, and kept alive by every claim of the name. It is gone when the name is idle. */
const RECORD_SECONDS = 25 * 60 * 60;

const TRIES_MAX = 50;

/** One transaction is certain of so many holders, beside its two other compares, and drops so many waiters, beside its two other writes. */
const HOLDERS_MAX = OPERATIONS_MAX - 3;
const DROPS_MAX = OPERATIONS_MAX - 3;

/** Change a busy name's capacity. */
export async function setCapacity(parts: Parts, name: string, from: number, to: number): Promise<CapacityAnswer> {
  const { keys, store, leases } = parts;
  const [first, end] = keys.claims(name);
  const record = keys.capacity(name);
  for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
    const seen = await store.txn({ success: [get(record), oldest(first, end, Infinity)] });
    const changed = changedOf(found(seen, 0)[0]);
    const queue = new Queue(found(seen, 1).map(entryOf), changed.to);
    if (queue.entries.length === 0) {
      if (changed.to !== null) await forgetCapacity(parts, name);
      return { kind: "set" };
    }
    const { capacity } = queue;
    const waiters = queue.entries.slice(queue.holders.length);
    const tooLarge = waiters.filter((entry) => (entry.record?.units ?? 1) > to);
    const dropped = tooLarge.slice(0, DROPS_MAX);
    const drops = dropped.map(({ key }) => remove(key));
    if (capacity === null || capacity === to) {
      // One that never fits would be in the way of all behind it: also if whoever changed the capacity did not get so far.
      if (drops.length === 0) return { kind: "set" };
      const these = dropped.map(({ key, token }) => createdAt(key, token));
      await store.txn({ compare: [changedAt(record, changed.revision), ...these], success: drops });
      continue;
    }
    if (capacity !== from) return { kind: "mismatch", capacity };
    // Whoever holds goes on holding, although it may not fit any more: so it must be certain who that is.
    const shrinks = to < capacity;
    if (shrinks && queue.holders.length > HOLDERS_MAX) throw tooMany(name, queue.holders.length);
    const grantedUpTo = shrinks ? (queue.holders.at(-1)?.token ?? 0) : (changed.to?.grantedUpTo ?? 0);
    const next = waiters.find((entry) => !tooLarge.includes(entry));
    const lease = changed.to === null ? (await leases.grant(RECORD_SECONDS)).id : changed.lease;
    const holders = shrinks ? queue.holders.map(({ key, token }) => createdAt(key, token)) : [];
    const { response } = await store.txn({
      // Quiet: so no key that is dropped belongs to another claim by now.
      compare: [changedAt(record, changed.revision), quietSince(first, end, seen.revision), ...holders],
      success: [
        put(record, JSON.stringify({ capacity: to, grantedUpTo }), lease),
        ...(next === undefined ? [] : [touch(next)]),
        ...drops,
      ],
    });
    if (response.succeeded && drops.length === tooLarge.length) return { kind: "set" };
    if (!response.succeeded && changed.to === null) leases.end(lease);
  }
  throw new Error("others came first, again and again");
}

/** Its owner watches it, and looks whether its turn has come. */
function touch({ key }: Entry): RequestOp {
  return { request_put: { key, ignore_value: true, ignore_lease: true } };
}

/** An idle name leaves nothing behind. */
export async function forgetCapacity(parts: Parts, name: string): Promise<void> {
  const { keys, store, leases } = parts;
  const record = keys.capacity(name);
  const idle = [absent(...keys.claims(name))];
  const answered = await store.txn({ compare: idle, success: [get(record), remove(record)] });
  const [kv] = found(answered, 0);
  if (kv !== undefined) leases.end(kv.lease);
}

function tooMany(name: string, count: number): EngineRefusedError {
  const cause = new Error(`"${name}" has ${count} holders, and one transaction can look after ${HOLDERS_MAX}`);
  return new EngineRefusedError("etcd", "Lower the capacity when fewer hold it.", cause);
}
