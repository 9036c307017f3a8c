// Beyond the common files of an engine: claim, renew, release and lookups read names in the same way, and share their readings.

import type { ClaimRef } from "../../core/engine.js";
import { parseCapacity } from "../../queue/capacity.js";
import type { ChangedCapacity } from "../../queue/queue.js";
import { type Entry, EtcdQueue, entryOf } from "./entries.js";
import type { KeyValue, RequestOp } from "./messages.js";
import { get, lastBefore, oldest } from "./requests.js";
import { type Answered, found, OPERATIONS_MAX, type Store } from "./store.js";

/** A name as one transaction saw it, with one claim of it. */
export type Snapshot = {
  readonly answered: Answered;
  readonly queue: EtcdQueue;
  readonly own: Entry | undefined;
  /** The claim that came before the own one; only if it was asked for. */
  readonly before: Entry | undefined;
  readonly changed: Changed;
};

/** The record of a changed capacity; revision 0 where there is none. */
export type Changed = { readonly to: ChangedCapacity | null; readonly revision: number; readonly lease: bigint };

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

/**
 * Reads names. For etcd each reading of a queue costs as much as the queue is long, so claims
 * of one name share one reading, and those that come while one is under way share the next.
 */
export class Snapshots {
  readonly #store: Store;
  readonly #gathering = new Map<string, { readonly wants: Wanted[]; readonly seen: Promise<readonly Snapshot[]> }>();
  readonly #underWay = new Map<string, Promise<unknown>>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** One claim, together with others of its name that are asked for at the same time. */
  async one(want: Wanted): Promise<Snapshot> {
    const { name } = want.ref;
    let batch = this.#gathering.get(name);
    if (batch === undefined) {
      const wants: Wanted[] = [];
      batch = { wants, seen: this.#next(name, wants) };
      this.#gathering.set(name, batch);
    }
    const n = batch.wants.push(want) - 1;
    return at(await batch.seen, n);
  }

  async #next(name: string, wants: readonly Wanted[]): Promise<readonly Snapshot[]> {
    await this.#underWay.get(name);
    this.#gathering.delete(name);
    const seen = this.all(wants);
    const done = seen.then(
      () => {},
      () => {},
    );
    this.#underWay.set(name, done);
    void done.then(() => this.#underWay.get(name) === done && this.#underWay.delete(name));
    return seen;
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

  async #whole(name: string): Promise<(ref: ClaimRef) => Snapshot> {
    const [from, to] = this.#store.keys.claims(name);
    const answered = await this.#store.txn({
      success: [get(this.#store.keys.capacity(name)), oldest(from, to, Infinity)],
    });
    const changed = changedOf(found(answered, 0)[0]);
    const entries = found(answered, 1).map((kv) => entryOf(kv, from));
    const queue = new EtcdQueue(entries, changed.to);
    const indexes = new Map(entries.map((entry, n) => [entry.id, n]));
    return ({ id }) => {
      const n = indexes.get(id) ?? -1;
      return { answered, queue, changed, own: entries[n], before: entries[n - 1] };
    };
  }

  async #some(wants: readonly Wanted[]): Promise<readonly Snapshot[]> {
    const operations: RequestOp[] = [];
    const add = (...more: RequestOp[]): number => operations.push(...more) - more.length;
    const indexes = wants.map(({ ref, key, limit, token, brief }) => {
      const [from, to] = this.#store.keys.claims(ref.name);
      return {
        limit,
        name: add(get(this.#store.keys.capacity(ref.name)), oldest(from, to, limit)),
        own: brief || key === undefined ? -1 : add(get(key)),
        before: brief || token === undefined ? -1 : add(lastBefore(from, to, token)),
      };
    });
    const answered = await this.#store.txn({ success: operations });
    return Promise.all(
      indexes.map(async ({ limit, name, own, before }, n) => {
        const changed = changedOf(found(answered, name)[0]);
        const { ref } = at(wants, n);
        const [from] = this.#store.keys.claims(ref.name);
        const entriesAt = (index: number): Entry[] => found(answered, index).map((kv) => entryOf(kv, from));
        const queue = new EtcdQueue(entriesAt(name + 1), changed.to);
        // All that was read holds, so more may: the capacity grew, or was lowered while many held.
        if (queue.entries.length >= limit && queue.firstWaiter === undefined) {
          return (await this.#whole(ref.name))(ref);
        }
        const there = own < 0 ? queue.entries : entriesAt(own);
        return { answered, queue, changed, own: there.find(({ id }) => id === ref.id), before: entriesAt(before)[0] };
      }),
    );
  }
}

function at<T>(list: readonly T[], n: number): T {
  const one = list[n];
  if (one === undefined) throw new Error("invariant: an answer for each question");
  return one;
}

export function changedOf(kv: KeyValue | undefined): Changed {
  if (kv === undefined) return { to: null, revision: 0, lease: 0n };
  return { to: parseCapacity(kv.value.toString()), revision: kv.mod_revision, lease: kv.lease };
}
