import type { QueueEntry } from "../../queue/queue.js";
import type { NodeQueue, Nodes } from "./nodes.js";

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
