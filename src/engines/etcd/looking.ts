import type { Tracked } from "./book.js";
import type { Parts } from "./parts.js";
import { entryOf, targetOf } from "./queue.js";
import { wantOf } from "./renewing.js";
import { found } from "./store.js";

/** Hand-over, as the one sees it who waits: a watch tells that something changed, and a look whether its turn has come. */
export class Looking {
  readonly #parts: Parts;
  /** Claims that are being looked at, and whether to look once more. */
  readonly #looking = new Map<Tracked, boolean>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Something changed before a claim that waits: is it its turn? */
  async look(tracked: Tracked): Promise<void> {
    if (this.#looking.has(tracked)) {
      this.#looking.set(tracked, true);
      return;
    }
    do {
      this.#looking.set(tracked, false);
      await this.#lookOnce(tracked);
    } while (this.#looking.get(tracked));
    this.#looking.delete(tracked);
  }

  async #lookOnce(tracked: Tracked): Promise<void> {
    const { book, tell, views } = this.#parts;
    const { name, id } = tracked;
    tracked.unwatchTarget?.();
    tracked.unwatchTarget = null;
    try {
      if (await this.#isClear(tracked)) return;
      // The own claim is read in the same step as those before it (`pitfalls.md` 1). Mostly its turn has come: what else a
      // claim needs to know that still waits, or has ended, is asked afterwards.
      const want = wantOf(tracked, tracked);
      const first = await views.one({ ...want, brief: true });
      const holds = first.view.own !== undefined && first.view.queue.holds(first.view.own.key);
      const { answered, view } = holds ? first : await views.one(want);
      if (tracked.over || tracked.granted) return;
      const { own, queue } = view;
      if (own === undefined || own.record === null) return book.lost(tracked);
      const { record } = own;
      if (!queue.holds(own.key)) return book.watch(tracked, targetOf(queue, own, view.before), answered.revision);
      book.stands(tracked, own.token, true, answered.revision);
      tell({ kind: "granted", name, id, ...queue.fence(own.token, record.exact === true) });
      book.passOn(tracked, queue, record);
    } catch {
      // Not known: the core asks, until it is answered.
      if (!tracked.over) tell({ kind: "wake", name, id });
    }
  }

  /**
   * The last claim that stood in the way has left, and whoever comes stands behind: the own claim holds if it is there at
   * that revision or a later one (`pitfalls.md` 1), and a member that lags tells the truth about those it has seen. Should
   * the claim end after that, it was granted before: the holder's deadline and the watch on its key take care of it.
   */
  async #isClear(tracked: Tracked): Promise<boolean> {
    const { book, keys, store, tell } = this.#parts;
    const { name, id, key, token, clearSince } = tracked;
    if (clearSince === 0) return false;
    tracked.clearSince = 0;
    const seen = await store.glimpse([keys.capacity(name), key], clearSince);
    if (tracked.over || tracked.granted) return true;
    if (seen === null || found(seen, 0).length > 0) return false;
    const own = found(seen, 1).map(entryOf)[0];
    if (own?.token !== token || own.record === null) return false;
    book.stands(tracked, token, true, seen.revision);
    const live = own.record.exact ? { live: [token] } : {};
    tell({ kind: "granted", name, id, token, floor: token, ...live });
    return true;
  }
}
