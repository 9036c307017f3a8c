// Beyond the common files of an engine: what a claim reads and watches while it waits, and how long it surely lasts.

import { holderOf } from "../../queue/answers.js";
import type { Known, QueueEntry } from "../../queue/queue.js";
import { Readings } from "../../queue/readings.js";
import type { QueueWatcher } from "../../queue/turns.js";
import { PredecessorWatch } from "./events.js";
import type { Found, NodeClaim } from "./node-claim.js";
import { contentBytes, type NodeQueue, type Nodes } from "./nodes.js";

export class NodeWatcher implements QueueWatcher<NodeClaim, Found> {
  readonly #nodes: Nodes;
  readonly #lookUp: (claim: NodeClaim) => void;
  readonly #queues: Readings<string, NodeQueue>;

  /** `lookUp`: the claim's turn may have come. */
  constructor(nodes: Nodes, lookUp: (claim: NodeClaim) => void) {
    this.#nodes = nodes;
    this.#lookUp = lookUp;
    this.#queues = new Readings(async (names) => {
      const queue = await nodes.queue(names[0] ?? "");
      return names.map(() => queue);
    });
  }

  async list(claim: NodeClaim): Promise<Found> {
    return claim.seenIn(await this.#queues.one(claim.name, claim.name));
  }

  async watch(claim: NodeClaim, { queue, own }: Found): Promise<Found | null> {
    if (own === undefined) return null;
    // What the answer will say of the holders is read in the same round trip.
    holderOf(this, claim.name, queue).catch(() => {});
    claim.predecessor ??= new PredecessorWatch(this.#nodes, claim.name, () => this.#lookUp(claim));
    const newer = await claim.predecessor.watch(queue, own);
    return newer && claim.seenIn(newer);
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
