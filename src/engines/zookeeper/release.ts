import type { ClaimRef, ReleaseAnswer } from "../../core/engine.js";
import type { QueueEntry } from "../../queue/queue.js";
import { goneBy, type QueueExit } from "../../queue/release.js";
import { CODE, hasCode } from "./errors.js";
import type { NodeClaim, NodeClaims } from "./node-claim.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** How nodes leave, and are replaced. */
export class NodeExit implements QueueExit<NodeClaim, QueueEntry> {
  readonly #nodes: Nodes;
  readonly #claims: NodeClaims;

  constructor(nodes: Nodes, claims: NodeClaims) {
    this.#nodes = nodes;
    this.#claims = claims;
  }

  async leave(claim: NodeClaim, buries: boolean): Promise<ReleaseAnswer> {
    try {
      return await claim.inTurn(async () => {
        this.#claims.finish(claim);
        const [removed, first] = await Promise.all([claim.remove(), buries ? this.#buryIfRoom(claim) : null]);
        this.#claims.forget(claim);
        return removed ? "released" : goneBy(this, claim, first);
      });
    } catch (cause) {
      // Whoever asked may give up before there is a connection again, and the session may well outlast that.
      this.#claims.expire(claim);
      throw cause;
    }
  }

  /**
   * Without one where a quota leaves no room for it: nobody is kept from letting go. A copy of the claim finds no room either; and
   * one that came after somebody made some would have come before this, as the server takes what one session asks in order.
   */
  async #buryIfRoom(claim: NodeClaim): Promise<boolean | null> {
    try {
      return await this.bury(claim);
    } catch (error) {
      if (hasCode(error, CODE.quotaExceeded)) return null;
      throw error;
    }
  }

  bury({ name, id }: ClaimRef): Promise<boolean> {
    return this.#nodes.bury(name, id);
  }

  async buried(refs: readonly ClaimRef[]): Promise<ReadonlySet<string>> {
    const all = await Promise.all(refs.map(({ name, id }) => this.#nodes.hasTombstone(name, id)));
    return new Set(refs.filter((_, n) => all[n]).map(({ id }) => id));
  }

  queueNow(name: string): Promise<NodeQueue> {
    return this.#nodes.queueNow(name);
  }

  removeEntry(name: string, { key }: QueueEntry): Promise<boolean> {
    return this.#nodes.remove(this.#nodes.nodePath(name, key));
  }
}

/** Fewer units for a hold. */
export async function shrink(
  nodes: Nodes,
  claims: NodeClaims,
  ref: ClaimRef,
  units: number,
): Promise<"resized" | "refused" | "gone"> {
  const { name, id } = ref;
  const local = claims.get(ref);
  // A node belongs to its session: no other client can replace it.
  if (local === undefined) return (await nodes.queueNow(name)).byId(id) === undefined ? "gone" : "refused";
  return local.inTurn(async () => {
    if (local.over || local.path === null) return "gone";
    if (!local.granted || units >= local.units) {
      // Nothing to write: whether it is still there has to be asked.
      const own = (await nodes.queueNow(name)).byId(id);
      if (own !== undefined) return local.granted && own.units === units ? "resized" : "refused";
      claims.lose(local);
      return "gone";
    }
    const outcome = await local.shrink(units);
    if (outcome === "gone") {
      claims.lose(local);
      return "gone";
    }
    // The end of the old node, which would have asked to watch the new one, was told before.
    if (outcome === "found") claims.watchOwn(local);
    // Who waits for it may fit beside it now.
    claims.changed(local);
    return "resized";
  });
}
