// Beyond the common files of an engine: claim, renew, release and lookups read names in the same way, and share their readings.

import type { ClaimRef } from "../../core/engine.js";
import { parseCapacity } from "../../queue/capacity.js";
import { type ChangedCapacity, Queue } from "../../queue/queue.js";
import { at, Readings } from "../../queue/readings.js";
import { type Entry, entryOf } from "./entries.js";
import type { KeyValue, RequestOp } from "./messages.js";
import { get, lastBefore, oldest, youngest } from "./requests.js";
import { type Answered, found, OPERATIONS_MAX, type Store } from "./store.js";

/** A name as one transaction saw it. */
export type NameSeen = { readonly answered: Answered; readonly queue: Queue<Entry>; readonly changed: Changed };

/** The same with one claim of it. */
export type Snapshot = NameSeen & {
  readonly own: Entry | undefined;
  /** The claim that came before the own one; only if it was asked for. */
  readonly before: Entry | undefined;
};

/** The record of a changed capacity; revision 0 where there is none. */
type Changed = { readonly to: ChangedCapacity | null; readonly revision: number; readonly lease: bigint };

/** A claim whose name is to be read. */
export type Wanted = {
  readonly ref: ClaimRef;
  /** Where it is. If that is not known, the whole queue has to be read to find it. */
  readonly key?: string | undefined;
  /** How many of the oldest claims of its name show who holds. */
  readonly limit: number;
  /** Of the claim whose predecessor is wanted. */
  readonly token?: number | undefined;
  /** Only to see whether it holds: then it is one of the oldest, and nothing else has to be read. */
  readonly brief?: true;
};

/** With more claims than this of one name, all of it is read once, instead of something for each. */
const FEW = 4;

/** A snapshot takes four operations at most. */
const WANTED_PER_TXN = OPERATIONS_MAX / 4;

/** Reads names. For etcd each reading of a queue costs as much as the queue is long: so claims of one name share readings. */
export class Snapshots {
  readonly #store: Store;
  readonly #readings = new Readings<Wanted, Snapshot>((wants) => this.all(wants));

  constructor(store: Store) {
    this.#store = store;
  }

  /** One claim, together with others of its name that are asked for at the same time. */
  one(want: Wanted): Promise<Snapshot> {
    return this.#readings.one(want.ref.name, want);
  }

  /** Each in the order in which it was asked for. */
  async all(wants: readonly Wanted[]): Promise<readonly Snapshot[]> {
    const names = new Map<string, number[]>();
    wants.forEach(({ ref }, n) => {
      const positions = names.get(ref.name);
      if (positions === undefined) names.set(ref.name, [n]);
      else positions.push(n);
    });
    const many = [...names].filter(([, positions]) => positions.length > FEW);
    const few = [...names].flatMap(([, positions]) => (positions.length > FEW ? [] : positions));
    const seen: Snapshot[] = [];
    const readings = many.map(async ([name, positions]) => {
      const whole = await this.#whole(name);
      for (const n of positions) seen[n] = whole(at(wants, n).ref);
    });
    for (let first = 0; first < few.length; first += WANTED_PER_TXN) {
      const positions = few.slice(first, first + WANTED_PER_TXN);
      readings.push(
        this.#some(positions.map((n) => at(wants, n))).then((some) => {
          for (const [k, n] of positions.entries()) seen[n] = at(some, k);
        }),
      );
    }
    await Promise.all(readings);
    return seen;
  }

  /** What a transaction reads that appends a claim: its place, if the queue is short. */
  atEnd({ name }: ClaimRef, limit: number): readonly RequestOp[] {
    const [from, to] = this.#store.keys.claims(name);
    return [...this.#front(name, limit), youngest(from, to, 2)];
  }

  #front(name: string, limit: number): readonly RequestOp[] {
    const [from, to] = this.#store.keys.claims(name);
    return [get(this.#store.keys.capacity(name)), oldest(from, to, limit)];
  }

  /** What that showed; `at`: its first operation. */
  async seenAtEnd(ref: ClaimRef, limit: number, answered: Answered, first: number): Promise<Snapshot> {
    const [from] = this.#store.keys.claims(ref.name);
    const [own, before] = found(answered, first + 2).map((kv) => entryOf(kv, from));
    return this.#shown(ref, limit, answered, first, own === undefined ? [] : [own], before);
  }

  async #shown(
    ref: ClaimRef,
    limit: number,
    answered: Answered,
    name: number,
    there: readonly Entry[] | null,
    before: Entry | undefined,
  ): Promise<Snapshot> {
    const changed = changedOf(found(answered, name)[0]);
    const [from] = this.#store.keys.claims(ref.name);
    const queue = new Queue(
      found(answered, name + 1).map((kv) => entryOf(kv, from)),
      changed.to,
    );
    // All that was read holds, so more may: the capacity grew, or was lowered while many held.
    if (queue.entries.length >= limit && queue.firstWaiter === undefined) return (await this.#whole(ref.name))(ref);
    return { answered, queue, changed, own: (there ?? queue.entries).find(({ id }) => id === ref.id), before };
  }

  async #whole(name: string): Promise<(ref: ClaimRef) => Snapshot> {
    const seen = await readName(this.#store, name);
    const { entries } = seen.queue;
    const indexes = new Map(entries.map((entry, n) => [entry.id, n]));
    return ({ id }) => {
      const n = indexes.get(id) ?? -1;
      return { ...seen, own: entries[n], before: entries[n - 1] };
    };
  }

  async #some(wants: readonly Wanted[]): Promise<readonly Snapshot[]> {
    const operations: RequestOp[] = [];
    const add = (...more: RequestOp[]): number => operations.push(...more) - more.length;
    const indexes = wants.map(({ ref, key, limit, token, brief }) => {
      const [from, to] = this.#store.keys.claims(ref.name);
      return {
        limit,
        name: add(...this.#front(ref.name, limit)),
        own: brief || key === undefined ? -1 : add(get(key)),
        before: brief || token === undefined ? -1 : add(lastBefore(from, to, token)),
      };
    });
    const answered = await this.#store.txn({ success: operations });
    return Promise.all(
      indexes.map(({ limit, name, own, before }, n) => {
        const { ref } = at(wants, n);
        const [from] = this.#store.keys.claims(ref.name);
        const entriesAt = (index: number): Entry[] => found(answered, index).map((kv) => entryOf(kv, from));
        return this.#shown(ref, limit, answered, name, own < 0 ? null : entriesAt(own), entriesAt(before)[0]);
      }),
    );
  }
}

/** All of a name, in one transaction. */
export async function readName(store: Store, name: string): Promise<NameSeen> {
  const [from, to] = store.keys.claims(name);
  const answered = await store.txn({ success: [get(store.keys.capacity(name)), oldest(from, to, Infinity)] });
  const changed = changedOf(found(answered, 0)[0]);
  const entries = found(answered, 1).map((kv) => entryOf(kv, from));
  return { answered, changed, queue: new Queue(entries, changed.to) };
}

function changedOf(kv: KeyValue | undefined): Changed {
  if (kv === undefined) return { to: null, revision: 0, lease: 0n };
  return { to: parseCapacity(kv.value.toString()), revision: kv.mod_revision, lease: kv.lease };
}
