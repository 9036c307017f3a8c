import type { ClaimRef } from "../../core/engine.js";
import type { Keys } from "./keys.js";
import { get, type KeyValue, lastBefore, oldest, type RequestOp } from "./messages.js";
import { type Capacity, type Entry, entryOf, limitOf, Queue } from "./queue.js";
import { type Answered, found } from "./store.js";

/** A name as one transaction saw it, with one claim of it. */
export type View = {
  readonly queue: Queue;
  readonly own: Entry | undefined;
  /** The claim that came before the own one; only if it was asked for. */
  readonly before: Entry | undefined;
  readonly marked: boolean;
  readonly changed: Changed;
  /** Whether enough of the oldest were read to know who holds. */
  readonly whole: boolean;
};

/** The record of a changed capacity, and where it stands; revision 0 where there is none. */
export type Changed = { readonly to: Capacity | null; readonly revision: number; readonly lease: bigint };

/** Where in a transaction the operations stand that one view is made of. */
type Places = {
  readonly name: number;
  readonly own: number;
  readonly mark: number;
  readonly before: number;
  readonly limit: number;
};

/** Collects the operations that see names and claims, each name once, and reads what they found. */
export class Sight {
  readonly operations: RequestOp[];
  readonly #keys: Keys;
  readonly #names = new Map<string, number>();

  /** After these operations. */
  constructor(keys: Keys, first: readonly RequestOp[] = []) {
    this.#keys = keys;
    this.operations = [...first];
  }

  /** `limit`: how many of the oldest. `token`: of the claim whose predecessor is wanted. */
  see(ref: ClaimRef, limit: number, token?: number): Places {
    const [from, to] = this.#keys.claims(ref.name);
    const name = this.#names.get(ref.name) ?? this.#add(get(this.#keys.capacity(ref.name)), oldest(from, to, limit));
    this.#names.set(ref.name, name);
    return {
      name,
      limit,
      own: this.#add(get(this.#keys.claim(ref.name, ref.id))),
      mark: this.#add(get(this.#keys.mark(ref.name, ref.id))),
      before: token === undefined ? -1 : this.#add(lastBefore(from, to, token)),
    };
  }

  #add(...operations: RequestOp[]): number {
    return this.operations.push(...operations) - operations.length;
  }
}

export function viewOf(answered: Answered, { name, own, mark, before, limit }: Places): View {
  const one = (at: number): Entry | undefined => found(answered, at).map(entryOf)[0];
  const changed = changedOf(found(answered, name)[0]);
  const queue = new Queue(found(answered, name + 1).map(entryOf), changed.to);
  return {
    queue,
    own: one(own),
    before: one(before),
    marked: found(answered, mark).length > 0,
    changed,
    whole: queue.entries.length < limit || limit >= limitOf(queue.capacity ?? 1),
  };
}

export function changedOf(kv: KeyValue | undefined): Changed {
  if (kv === undefined) return { to: null, revision: 0, lease: 0n };
  return { to: JSON.parse(kv.value.toString()) as Capacity, revision: kv.mod_revision, lease: kv.lease };
}
