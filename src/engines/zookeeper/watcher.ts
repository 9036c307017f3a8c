// Beyond the common files of an engine: what a claim reads and watches while it waits, and how long it surely lasts.

import type { Known, QueueEntry } from "../../queue/queue.js";
import type { QueueWatcher } from "../../queue/turns.js";
import { PredecessorWatch } from "./events.js";
import type { Found, NodeClaim } from "./node-claim.js";
import { contentBytes, type Nodes } from "./nodes.js";

/** Who is told. */
type WatcherEvents = {
  /** Its turn may have come. */
  lookUp(claim: NodeClaim): void;
  /** Its turn has come. */
  granted(claim: NodeClaim): void;
  /** Its own node is to be watched, too. */
  watchOwn(claim: NodeClaim): void;
};

export class NodeWatcher implements QueueWatcher<NodeClaim, Found> {
  readonly #nodes: Nodes;
  readonly #events: WatcherEvents;

  constructor(nodes: Nodes, events: WatcherEvents) {
    this.#nodes = nodes;
    this.#events = events;
  }

  async list(claim: NodeClaim): Promise<Found> {
    return claim.seenIn(await this.#nodes.sharedQueue(claim.name));
  }

  async watch(claim: NodeClaim, { queue, own }: Found): Promise<Found | null> {
    if (own === undefined) return null;
    claim.predecessor ??= new PredecessorWatch(this.#nodes, claim.name, (cleared) => this.#changed(claim, cleared));
    const watching = claim.predecessor.watch(queue, own);
    if (claim.predecessor.isLast && !claim.isWatched) this.#events.watchOwn(claim);
    const newer = await watching;
    return newer && claim.seenIn(newer);
  }

  /**
   * The last claim in its way left while the own one was there: had that left before, this session would have been told before
   * (pitfall 1). So it holds from then on.
   */
  #changed(claim: NodeClaim, cleared: boolean): void {
    if (cleared && claim.isWatched && this.maySay(claim)) this.#events.granted(claim);
    else this.#events.lookUp(claim);
  }

  unwatch({ predecessor }: NodeClaim): void {
    predecessor?.stop();
  }

  touch({ path, request }: NodeClaim): void {
    if (path === null) return;
    this.#nodes.session.write((client) => client.set(path, contentBytes(request))).catch(() => {});
  }

  async leftMs({ endsAt }: NodeClaim, calledAt: number): Promise<number> {
    return Math.max(0, Math.min(endsAt, this.#nodes.session.until) - calledAt);
  }

  placeMs({ endsAt }: NodeClaim, calledAt: number): number | undefined {
    const { until } = this.#nodes.session;
    return endsAt <= until ? undefined : Math.max(0, until - calledAt);
  }

  maySay({ endsAt }: NodeClaim): boolean {
    return endsAt <= this.#nodes.session.until;
  }

  know(name: string, entry: QueueEntry): Promise<Known | null> {
    return this.#nodes.know(name, entry);
  }

  /** Whoever dies is noticed when its session ends. */
  deathShowsMs(): number {
    return this.#nodes.session.timeoutMs;
  }
}
