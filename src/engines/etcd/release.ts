import type { ClaimRef, ReleaseAnswer } from "../../core/engine.js";
import type { Queue } from "../../queue/queue.js";
import { goneBy, type QueueExit, removeById } from "../../queue/release.js";
import { forgetCapacity, readNow } from "./capacity.js";
import type { EtcdClaim, EtcdClaims } from "./claims.js";
import type { Entry } from "./entries.js";
import { isOutOfSpace } from "./errors.js";
import type { RequestOp } from "./messages.js";
import { createdAt, get, put, remove } from "./requests.js";
import { found, OPERATIONS_MAX } from "./store.js";

/**
 * How keys leave. They are used again, and a request may arrive late: so nothing is removed but the very claim that was meant,
 * known by the revision that created it.
 */
export class EtcdExit implements QueueExit<EtcdClaim, Entry> {
  readonly #claims: EtcdClaims;

  constructor(claims: EtcdClaims) {
    this.#claims = claims;
  }

  /** One transaction, where it is certain where the claim is, and since when. */
  async leave(claim: EtcdClaim, buries: boolean): Promise<ReleaseAnswer | null> {
    const { name, id, key, token, slot } = claim;
    this.#claims.finish(claim);
    if (!claim.certain) return null;
    const { store } = this.#claims;
    const capacity = get(store.keys.capacity(name));
    const leave = (bury: readonly RequestOp[]) =>
      store.write({
        compare: [createdAt(key, token)],
        success: [capacity, remove(key), ...bury],
        // A tombstone that was there before: somebody else released it.
        failure: [capacity, get(store.keys.tombstone(name, id)), ...bury],
      });
    const answered = await (buries ? this.#burying(claim, leave) : leave([]));
    this.#claims.forget(claim);
    if (found(answered, 0).length > 0) await forgetCapacity(store, this.#claims.leases, name);
    if (answered.response.succeeded) return "released";
    // At a key that is not this engine's own somebody else may have claimed anew with the same id. The tombstone is set by now.
    const elsewhere = slot === null && (await removeById(this, claim));
    return elsewhere ? "released" : goneBy(this, claim, found(answered, 1).length === 0);
  }

  bury(ref: ClaimRef): Promise<boolean | null> {
    const { store } = this.#claims;
    const before = get(store.keys.tombstone(ref.name, ref.id));
    return this.#burying(ref, async (bury) =>
      bury.length === 0 ? null : found(await store.txn({ success: [before, ...bury] }), 0).length === 0,
    );
  }

  /** With no space left nothing may be written, no late copy of the claim either: then it needs no tombstone. */
  async #burying<T>({ name, id }: ClaimRef, write: (bury: readonly RequestOp[]) => Promise<T>): Promise<T> {
    const { store, leases } = this.#claims;
    try {
      return await leases.bury((lease) => write([put(store.keys.tombstone(name, id), "", lease)]));
    } catch (cause) {
      if (!isOutOfSpace(cause)) throw cause;
      return write([]);
    }
  }

  async buried(refs: readonly ClaimRef[]): Promise<ReadonlySet<string>> {
    const { store } = this.#claims;
    const ids = new Set<string>();
    for (let first = 0; first < refs.length; first += OPERATIONS_MAX) {
      const some = refs.slice(first, first + OPERATIONS_MAX);
      const answered = await store.txn({ success: some.map(({ name, id }) => get(store.keys.tombstone(name, id))) });
      for (const [k, { id }] of some.entries()) if (found(answered, k).length > 0) ids.add(id);
    }
    return ids;
  }

  async queueNow(name: string): Promise<Queue<Entry>> {
    return (await readNow(this.#claims.store, this.#claims.leases, name)).queue;
  }

  async removeEntry(name: string, { key, token }: Entry): Promise<boolean> {
    const { store, leases } = this.#claims;
    const success = [get(store.keys.capacity(name)), remove(key)];
    const answered = await store.txn({ compare: [createdAt(key, token)], success });
    if (found(answered, 0).length > 0) await forgetCapacity(store, leases, name);
    return answered.response.succeeded;
  }
}
