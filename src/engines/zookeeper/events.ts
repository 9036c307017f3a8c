import type { QueueEntry } from "../../queue/queue.js";
import type { FollowedQueue } from "./followed.js";
import { keyOf } from "./node-names.js";
import type { NodeQueue, Nodes } from "./nodes.js";

/** What one waiting claim watches: its predecessor, and as the first waiter of a semaphore all nodes of the name. */
export class PredecessorWatch {
  readonly #nodes: Nodes;
  readonly #name: string;
  readonly #changed: (cleared: boolean) => void;
  #predecessor: string | null = null;
  /** A claim for several units may shrink: its node then ends, and another one is in its place. */
  #mayShrink = false;
  /** Only the predecessor is in the way, as long as the queue is followed and nothing else was heard of it. */
  #last: FollowedQueue | null = null;
  #generation = 0;
  #all = false;

  /** `cleared`: nobody is in the way any more. */
  constructor(nodes: Nodes, name: string, changed: (cleared: boolean) => void) {
    this.#nodes = nodes;
    this.#name = name;
    this.#changed = changed;
  }

  /** Whether its end alone would tell that the turn has come. */
  get isLast(): boolean {
    return this.#last !== null;
  }

  /** Null when everything that matters is watched now; otherwise the queue after a change. */
  async watch(queue: NodeQueue, own: QueueEntry): Promise<NodeQueue | null> {
    const { predecessor, all, last } = queue.watchRule(own);
    const followed = this.#followed;
    this.#mayShrink = (predecessor?.units ?? 1) > 1;
    this.#last = last && !this.#mayShrink && followed?.armed ? followed : null;
    this.#generation = followed?.generation ?? 0;
    const path = predecessor === undefined ? null : this.#nodes.nodePath(this.#name, predecessor.key);
    const { session } = this.#nodes;
    let reading: Promise<unknown> = Promise.resolve(true);
    if (path !== null && path !== this.#predecessor) {
      if (this.#predecessor !== null) this.#unwatch(this.#predecessor);
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
      if (node !== null) {
        if (this.#predecessor !== null) this.#follow(this.#predecessor, true);
        return newer;
      }
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
    if (this.#predecessor !== null) this.#unwatch(this.#predecessor);
    if (this.#all) client.unwatch(this.#nodes.pathOf(this.#name), this.#anyChanged);
    this.#predecessor = null;
    this.#all = false;
  }

  #unwatch(path: string): void {
    this.#follow(path, false);
    this.#nodes.session.client.unwatch(path, this.#predecessorChanged);
  }

  /** Whether its end would be told: then the queue need not be read to know that it is there. */
  #follow(path: string, watched: boolean): void {
    this.#followed?.watch(keyOf(path), watched);
  }

  get #followed(): FollowedQueue | undefined {
    return this.#nodes.followed.get(this.#nodes.pathOf(this.#name));
  }

  readonly #predecessorChanged = (deleted = false): void => {
    const cleared = deleted && this.#last?.armed === true && this.#last.generation === this.#generation;
    if (this.#predecessor !== null && deleted && !this.#mayShrink) this.#followed?.remove(keyOf(this.#predecessor));
    else if (this.#predecessor !== null) this.#follow(this.#predecessor, false);
    this.#predecessor = null;
    this.#last = null;
    this.#changed(cleared);
  };

  readonly #anyChanged = (): void => {
    this.#all = false;
    this.#changed(false);
  };
}
