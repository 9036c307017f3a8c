// Beyond the common files of an engine: what a claim's key and value say.

import type { ClaimRequest } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import { READERS_MAX } from "../../core/limits.js";
import type { Queue, QueueEntry } from "../../queue/queue.js";
import type { KeyValue } from "./messages.js";

/** A claim's value. */
export type Record = {
  readonly id?: string;
  readonly units: number;
  readonly capacity: number;
  readonly leaseMs: number;
  readonly owner: Owner;
  readonly data?: string;
  readonly exact?: boolean;
  readonly fixed?: true;
};

export type Entry = QueueEntry & {
  /** For an entry that is not ours, what its key says. */
  readonly id: string;
  /** The revision that created it: its position in the queue, and its token once it is granted. */
  readonly token: number;
  /** The revision of its last change. */
  readonly changed: number;
  readonly lease: bigint;
  /** Null: not ours, as `etcdctl lock` leaves it. */
  readonly record: Record | null;
};

export function recordText(claim: ClaimRequest): string {
  const { id, units, capacity, leaseMs, owner, data, exact, fixed } = claim;
  return JSON.stringify({ holdfast: 1, id, units, capacity, leaseMs, owner, data, exact, fixed });
}

/** `from`: where the keys of its name begin. */
export function entryOf(kv: KeyValue, from: string): Entry {
  const { key, create_revision: token, mod_revision: changed, lease } = kv;
  const record = parsed(kv.value);
  const { id = key.slice(from.length), units = null, capacity = null } = record ?? {};
  return { key, order: token, id, units, capacity, token, changed, lease, record };
}

function parsed(value: Buffer): Record | null {
  try {
    const record = JSON.parse(value.toString()) as (Record & { holdfast?: number }) | null;
    return record?.holdfast === 1 ? record : null;
  } catch {
    return null;
  }
}

/** Who holds, for somebody who does not; nothing of an entry that is not ours. */
export function holderOf({ holders }: Queue<Entry>): { readonly holder?: Owner } {
  const owner = holders[0]?.record?.owner;
  return owner === undefined ? {} : { holder: owner };
}

/** As many of the oldest as can hold, and the first that waits; readers read all, for the nearest writer. */
export function limitOf(capacity: number): number {
  return capacity >= READERS_MAX ? Infinity : capacity + 2;
}
