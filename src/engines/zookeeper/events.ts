import { queuedOf } from "../../queue/answers.js";
import type { Known, QueueEntry } from "../../queue/queue.js";
import { Readings } from "../../queue/readings.js";
import type { QueueWatcher } from "../../queue/turns.js";
import type { Found, NodeClaim } from "./node-claim.js";
import { contentBytes, type NodeQueue, type Nodes } from "./nodes.js";

/** What one waiting claim watches: its predecessor, and as the first waiter of a semaphore all nodes of the name. */
export class PredecessorWatch {
  readonly #nodes: Nodes;
  readonly #name: string;
  readonly #changed: () => void;
  #predecessor: string | null = null;
  #all = false;

  constructor(nodes: Nodes, name: string, changed: () => void) {
    this.#nodes = nodes;
    this.#name = name;
    this.#changed = changed;
  }

  /** Null when everything that matters is watched now; otherwise the queue after a change. */
  async watch(queue: NodeQueue, own: QueueEntry): Promise<NodeQueue | null> {
    const { predecessor, all } = queue.watchRule(own);
    const path = predecessor === undefined ? null : this.#nodes.nodePath(this.#name, predecessor.key);
    const { session } = this.#nodes;
    let reading: Promise<unknown> = Promise.resolve(true);
    if (path !== null && path !== this.#predecessor) {
      if (this.#predecessor !== null) session.client.unwatch(this.#predecessor, this.#predecessorChanged);
      this.#predecessor = path;
      reading = session.read((client) => client.get(path, this.#predecessorChanged));
    }
    let listing: Promise<NodeQueue | null> = Promise.resolve(null);
    if (all && !this.#all) {
      this.#all = true;
      listing = this.#nodes.queue(this.#name, this.#anyChanged);
    }
    try {
      const [node, newer] = await Promise.all([reading, listing]);
      if (node !== null) return newer;
      this.#predecessor = null;
      return newer ?? (await this.#nodes.queue(this.#name));
    } catch (error) {
      // Not watched, as far as is known: the next heartbeat tries again.
      this.stop();
      throw error;
    }
  }

  stop(): void {
    const { client } = this.#nodes.session;
    if (this.#predecessor !== null) client.unwatch(this.#predecessor, this.#predecessorChanged);
    if (this.#all) client.unwatch(this.#nodes.pathOf(this.#name), this.#anyChanged);
    this.#predecessor = null;
    this.#all = false;
  }

  readonly #predecessorChanged = (): void => {
    this.#predecessor = null;
    this.#changed();
  };

  readonly #anyChanged = (): void => {
    this.#all = false;
    this.#changed();
  };
}

/** What the nodes of a name tell a claim that waits. */
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
    queuedOf(this, claim.name, queue, own).catch(() => {});
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
