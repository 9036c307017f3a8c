import type { ClaimRef } from "../../core/engine.js";
import { type Capacity, type Entry, entryOf, idOf, Queue } from "./entries.js";
import type { Keys } from "./keys.js";
import type { KeyValue, RequestOp } from "./messages.js";
import { get, lastBefore, oldest } from "./requests.js";
import { type Answered, found, OPERATIONS_MAX, type Store } from "./transactions.js";

/** A name as one transaction saw it, with one claim of it. */
export type View = {
  readonly queue: Queue;
  readonly own: Entry | undefined;
  /** The claim that came before the own one; only if it was asked for. */
  readonly before: Entry | undefined;
  readonly changed: Changed;
};
export type Seen = { readonly answered: Answered; readonly view: View };

/** The record of a changed capacity, and where it stands; revision 0 where there is none. */
export type Changed = { readonly to: Capacity | null; readonly revision: number; readonly lease: bigint };

/** A claim to be looked at. */
export type Want = {
  readonly ref: ClaimRef;
  /** Where it stands. If that is not known, the whole queue has to be read to find it. */
  readonly key?: string | undefined;
  /** How many of the oldest claims of its name show who holds. */
  readonly limit: number;
  /** Of the claim whose predecessor is wanted. */
  readonly token?: number | undefined;
  /** Only to see whether it holds: then it is one of the oldest, and nothing else has to be read. */
  readonly brief?: true;
};

/** With more claims than this to look at under one name, all of it is read once, instead of something for each. */
const FEW = 4;

/** A view takes four operations at most. */
const WANTS_PER_TXN = OPERATIONS_MAX / 4;

/**
 * Looks at names. For etcd each look at a queue costs as much as the queue is long, so claims of one name that are to be
 * looked at together share one look, and those that come while one is under way share the next.
 */
export class Views {
  readonly #store: Store;
  readonly #keys: Keys;
  readonly #gathering = new Map<string, { readonly wants: Want[]; readonly seen: Promise<readonly Seen[]> }>();
  readonly #underWay = new Map<string, Promise<unknown>>();

  constructor(store: Store, keys: Keys) {
    this.#store = store;
    this.#keys = keys;
  }

  /** One claim, together with others of its name that are asked for at the same time. */
  async one(want: Want): Promise<Seen> {
    const { name } = want.ref;
    let batch = this.#gathering.get(name);
    if (batch === undefined) {
      const wants: Want[] = [];
      batch = { wants, seen: this.#next(name, wants) };
      this.#gathering.set(name, batch);
    }
    const n = batch.wants.push(want) - 1;
    return at(await batch.seen, n);
  }

  async #next(name: string, wants: readonly Want[]): Promise<readonly Seen[]> {
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

  /** Each in its place. */
  async all(wants: readonly Want[]): Promise<readonly Seen[]> {
    const names = new Map<string, number[]>();
    wants.forEach(({ ref }, n) => {
      const places = names.get(ref.name);
      if (places === undefined) names.set(ref.name, [n]);
      else places.push(n);
    });
    const many = [...names].filter(([, places]) => places.length > FEW);
    const few = [...names].flatMap(([, places]) => (places.length > FEW ? [] : places));
    const seen: Seen[] = [];
    const looks = many.map(async ([name, places]) => {
      const whole = await this.#whole(name);
      for (const n of places) seen[n] = whole(at(wants, n).ref);
    });
    for (let first = 0; first < few.length; first += WANTS_PER_TXN) {
      const places = few.slice(first, first + WANTS_PER_TXN);
      looks.push(
        this.#some(places.map((n) => at(wants, n))).then((some) => {
          for (const [k, n] of places.entries()) seen[n] = at(some, k);
        }),
      );
    }
    await Promise.all(looks);
    return seen;
  }

  async #whole(name: string): Promise<(ref: ClaimRef) => Seen> {
    const [from, to] = this.#keys.claims(name);
    const answered = await this.#store.txn({ success: [get(this.#keys.capacity(name)), oldest(from, to, Infinity)] });
    const changed = changedOf(found(answered, 0)[0]);
    const entries = found(answered, 1).map(entryOf);
    const queue = new Queue(entries, changed.to);
    const places = new Map(entries.map((entry, n) => [idOf(entry, from), n]));
    return ({ id }) => {
      const n = places.get(id) ?? -1;
      return { answered, view: { queue, changed, own: entries[n], before: entries[n - 1] } };
    };
  }

  async #some(wants: readonly Want[]): Promise<readonly Seen[]> {
    const operations: RequestOp[] = [];
    const add = (...more: RequestOp[]): number => operations.push(...more) - more.length;
    const places = wants.map(({ ref, key, limit, token, brief }) => {
      const [from, to] = this.#keys.claims(ref.name);
      return {
        limit,
        name: add(get(this.#keys.capacity(ref.name)), oldest(from, to, limit)),
        own: brief || key === undefined ? -1 : add(get(key)),
        before: brief || token === undefined ? -1 : add(lastBefore(from, to, token)),
      };
    });
    const answered = await this.#store.txn({ success: operations });
    return Promise.all(
      places.map(async ({ limit, name, own, before }, n) => {
        const changed = changedOf(found(answered, name)[0]);
        const queue = new Queue(found(answered, name + 1).map(entryOf), changed.to);
        // All that was read holds, so more may: the capacity grew, or was lowered while many held.
        const { ref } = at(wants, n);
        if (queue.entries.length >= limit && queue.firstWaiter === undefined) {
          return (await this.#whole(ref.name))(ref);
        }
        const one = (place: number): Entry | undefined => found(answered, place).map(entryOf)[0];
        const [from] = this.#keys.claims(ref.name);
        const isOwn = (entry: Entry): boolean => idOf(entry, from) === ref.id;
        const there = own < 0 ? queue.entries : found(answered, own).map(entryOf);
        return { answered, view: { queue, changed, own: there.find(isOwn), before: one(before) } };
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
  return { to: JSON.parse(kv.value.toString()) as Capacity, revision: kv.mod_revision, lease: kv.lease };
}
