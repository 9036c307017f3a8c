import type { ClaimRequest, Fence, Queued } from "../../core/engine.js";
import type { Owner } from "../../core/inspect.js";
import { READERS_MAX } from "../../core/limits.js";
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

/** Written when the capacity of a busy name was changed: who held then goes on holding. */
export type Capacity = { readonly capacity: number; readonly grantedUpTo: number };

export type Entry = {
  readonly key: string;
  /** The revision that created it: its place in the queue, and its token once it is granted. */
  readonly token: number;
  /** The revision of its last change. */
  readonly changed: number;
  readonly lease: bigint;
  /** Null: not ours, as `etcdctl lock` leaves it. It wants the name for itself. */
  readonly record: Record | null;
};

export function recordText(claim: ClaimRequest): string {
  const { id, units, capacity, leaseMs, owner, data, exact, fixed } = claim;
  return JSON.stringify({ holdfast: 1, id, units, capacity, leaseMs, owner, data, exact, fixed });
}

export function entryOf({ key, create_revision: token, mod_revision: changed, lease, value }: KeyValue): Entry {
  return { key, token, changed, lease, record: parsed(value) };
}

/** The id that it was claimed with; for what is not ours, what its key says. `from`: where the keys of its name begin. */
export function idOf({ key, record }: Entry, from: string): string {
  return record?.id ?? key.slice(from.length);
}

function parsed(value: Buffer): Record | null {
  try {
    const record = JSON.parse(value.toString()) as (Record & { holdfast?: number }) | null;
    return record?.holdfast === 1 ? record : null;
  } catch {
    return null;
  }
}

/** Until the lease of a holder that is not ours ends, nobody knows how long that is; `etcdctl lock` asks for this. */
const FOREIGN_LEASE_MS = 10_000;

/**
 * One name at one moment: the oldest claims, as far as they were read, and who of them holds. A claim holds when it fits
 * beside everything that came before it; nobody is asked, and nothing has to be written, for the next one to be granted.
 */
export class Queue {
  readonly entries: readonly Entry[];
  readonly holders: readonly Entry[];
  readonly firstWaiter: Entry | undefined;
  /** Null while nobody of ours said one. */
  readonly capacity: number | null;

  constructor(entries: readonly Entry[], changed: Capacity | null) {
    this.entries = entries;
    this.capacity = changed?.capacity ?? entries.find((entry) => entry.record !== null)?.record?.capacity ?? null;
    const capacity = this.capacity ?? 1;
    let taken = 0;
    const waiting = entries.findIndex((entry) => {
      const units = unitsOf(entry, capacity);
      if (taken + units > capacity && entry.token > (changed?.grantedUpTo ?? 0)) return true;
      taken += units;
      return false;
    });
    this.holders = waiting < 0 ? entries : entries.slice(0, waiting);
    this.firstWaiter = waiting < 0 ? undefined : entries[waiting];
    this.#taken = taken;
  }

  readonly #taken: number;

  /** Whether one more, at the end, would hold at once. */
  fits(units: number): boolean {
    return this.firstWaiter === undefined && this.#taken + units <= (this.capacity ?? 1);
  }

  holds(key: string): boolean {
    return this.holders.some((entry) => entry.key === key);
  }

  fence(token: number, exact: boolean): Fence {
    const live = this.holders.map((holder) => holder.token);
    return { token, floor: live[0] ?? token, ...(exact ? { live } : {}) };
  }

  queued(key: string): Queued {
    const first = this.firstWaiter?.key === key;
    const leases = this.holders.map((holder) => holder.record?.leaseMs ?? FOREIGN_LEASE_MS);
    return {
      kind: "queued",
      lastToken: this.holders.at(-1)?.token ?? 0,
      // The blocking lease lasts this long at most, without another heartbeat.
      nextMs: first ? Math.min(...leases) : null,
      ...this.holder(),
    };
  }

  holder(): { readonly holder?: Owner } {
    const owner = this.holders[0]?.record?.owner;
    return owner === undefined ? {} : { holder: owner };
  }
}

function unitsOf(entry: Entry, capacity: number): number {
  return entry.record?.units ?? capacity;
}

/** As many of the oldest as can hold, and the first that waits; readers look at all, for the nearest writer. */
export function limitOf(capacity: number): number {
  return capacity >= READERS_MAX ? Infinity : capacity + 2;
}

/** What a waiting claim has to watch: one key, or all claims of its name. `last`: nobody else stands in its way. */
export type Target = { readonly key: string; readonly last: boolean } | "all";

/**
 * One wake-up for each change, never a herd (`pitfalls.md` 15, 56): whoever wants the name for itself watches the claim
 * before it; a reader the nearest writer before it; of a semaphore's waiters the first watches all, because any holder
 * may make room, and the others the claim before them, which is touched when it is granted.
 */
export function targetOf(queue: Queue, own: Entry, before: Entry | undefined): Target {
  const capacity = queue.capacity ?? 1;
  const units = unitsOf(own, capacity);
  if (capacity >= READERS_MAX && units < capacity) {
    const earlier = queue.entries.filter((entry) => entry.token < own.token);
    const writer = earlier.findLast((entry) => unitsOf(entry, capacity) >= capacity);
    return writer === undefined ? "all" : { key: writer.key, last: false };
  }
  const alone = units >= capacity;
  if (before === undefined || (!alone && queue.firstWaiter?.key === own.key)) return "all";
  // Whoever wants the name for itself holds once the oldest of all has left, if that was the one before it.
  return { key: before.key, last: alone && queue.entries[0]?.key === before.key };
}
