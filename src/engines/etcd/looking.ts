import type { Tracked } from "./claims.js";
import { targetOf } from "./entries.js";
import type { Parts } from "./parts.js";
import { wantOf } from "./renew.js";

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
      if (this.#isClear(tracked)) return;
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
   * The last claim that stood in the way left at a revision at which the own one was there: both are told by one watch, which
   * leaves nothing out and keeps the order (`pitfalls.md` 1). Whoever came since stands behind, so it holds from that revision
   * on, although the member that told it may lag. Should the claim end after that, it was granted before: the holder's
   * deadline, which counts from what the quorum confirmed, and the watch on its key take care of it.
   */
  #isClear(tracked: Tracked): boolean {
    const { name, id, token, clearSince, exact } = tracked;
    if (clearSince === 0) return false;
    tracked.clearSince = 0;
    if (tracked.over || tracked.granted) return true;
    this.#parts.book.stands(tracked, token, true, clearSince);
    this.#parts.tell({ kind: "granted", name, id, token, floor: token, ...(exact ? { live: [token] } : {}) });
    return true;
  }
}
