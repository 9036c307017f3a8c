// Beyond the common files of an engine: hand-over as a waiter sees it; it is asked for by watches, not by a verb.

import type { EngineEvent } from "../../core/engine.js";
import { awaitTurn, Lookups, type QueueStore } from "../../queue/lookups.js";
import type { Claims, EtcdClaim } from "./claims.js";
import type { Entry } from "./entries.js";
import { wantedOf } from "./renew.js";
import type { Snapshot, Snapshots } from "./snapshots.js";

/** Hand-over, as a waiter sees it. A watch tells of a change, a lookup whether its turn has come. */
export class TurnLookups implements QueueStore<EtcdClaim, Entry, Snapshot> {
  readonly #claims: Claims;
  readonly #snapshots: Snapshots;
  readonly #tell: (event: EngineEvent) => void;
  readonly #lookups = new Lookups<EtcdClaim>((claim) => this.#lookUp(claim));

  constructor(claims: Claims, snapshots: Snapshots, tell: (event: EngineEvent) => void) {
    this.#claims = claims;
    this.#snapshots = snapshots;
    this.#tell = tell;
  }

  request(claim: EtcdClaim): void {
    void this.#lookups.request(claim);
  }

  async #lookUp(claim: EtcdClaim): Promise<void> {
    const { name, id } = claim;
    claim.unwatchPredecessor?.();
    claim.unwatchPredecessor = null;
    try {
      if (!this.#isClear(claim)) await awaitTurn(this, claim);
    } catch {
      // Not known: the core asks, until it is answered.
      if (!claim.over) this.#tell({ kind: "wake", name, id });
    }
  }

  /** Mostly its turn has come: what else a claim needs to know that still waits, or has ended, is asked afterwards. */
  async list(claim: EtcdClaim): Promise<Snapshot> {
    const wanted = wantedOf(claim, claim);
    const first = await this.#snapshots.one({ ...wanted, brief: true });
    return first.own !== undefined && first.queue.holds(first.own) ? first : this.#snapshots.one(wanted);
  }

  async watch(claim: EtcdClaim, { queue, own, before, answered }: Snapshot): Promise<null> {
    if (own !== undefined) this.#claims.watch(claim, queue.watchRule(own, before), answered.revision);
    return null;
  }

  grant(claim: EtcdClaim, { queue, own, answered }: Snapshot): void {
    // Answered by a heartbeat meanwhile.
    if (claim.granted || own === undefined) return;
    if (own.record === null) return this.lose(claim);
    const { name, id } = claim;
    this.#claims.found(claim, own.token, true, answered.revision);
    this.#tell({ kind: "granted", name, id, ...queue.fence(own.token, own.record.exact === true) });
    this.#claims.touch(claim, queue, own);
  }

  lose(claim: EtcdClaim): void {
    this.#claims.lose(claim);
  }

  /**
   * The last claim in its way left at a revision at which the own one was there: both are told by one watch, which leaves
   * nothing out and keeps the order (pitfall 1). Whoever came since is behind it, so it holds from that revision on, although
   * the member that told it may lag. Should the claim end after that, it was granted before: the holder's deadline, which
   * counts from what the quorum confirmed, and the watch on its key take care of it.
   */
  #isClear(claim: EtcdClaim): boolean {
    const { name, id, token, clearSince, exact } = claim;
    if (clearSince === 0) return false;
    claim.clearSince = 0;
    if (claim.over || claim.granted) return true;
    this.#claims.found(claim, token, true, clearSince);
    this.#tell({ kind: "granted", name, id, token, floor: token, ...(exact ? { live: [token] } : {}) });
    return true;
  }
}
