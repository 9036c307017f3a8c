import type { Line } from "./line.js";
import type { Entry } from "./names.js";
import type { Store } from "./store.js";

/** What one waiting claim watches: the node before it that blocks it, and as the first of a semaphore's line the whole line. */
export class Lookout {
  readonly #store: Store;
  readonly #name: string;
  readonly #changed: () => void;
  #blocker: string | null = null;
  #all = false;

  constructor(store: Store, name: string, changed: () => void) {
    this.#store = store;
    this.#name = name;
    this.#changed = changed;
  }

  /** Whether everything that matters in this line will be told. */
  covers(line: Line, own: Entry): boolean {
    return this.#blocker !== null && (this.#all || !line.watchesAll(own));
  }

  /** Null when everything that matters is watched now; otherwise the line after a change. */
  async watch(line: Line, own: Entry): Promise<Line | null> {
    const blocker = line.blockerOf(own);
    const path = blocker === undefined ? null : this.#store.nodePath(this.#name, blocker.node);
    const { session } = this.#store;
    let there: Promise<unknown> = Promise.resolve(true);
    if (path !== null && path !== this.#blocker) {
      if (this.#blocker !== null) session.client.unwatch(this.#blocker, this.#blockerChanged);
      this.#blocker = path;
      there = session.read((client) => client.get(path, this.#blockerChanged));
    }
    let all: Promise<Line | null> = Promise.resolve(null);
    if (line.watchesAll(own) && !this.#all) {
      this.#all = true;
      all = this.#store.line(this.#name, this.#lineChanged);
    }
    try {
      const [node, newer] = await Promise.all([there, all]);
      if (node !== null) return newer;
      this.#blocker = null;
      return newer ?? (await this.#store.line(this.#name));
    } catch (error) {
      // Not watched, as far as is known: the next heartbeat looks again.
      this.leave();
      throw error;
    }
  }

  leave(): void {
    const { client } = this.#store.session;
    if (this.#blocker !== null) client.unwatch(this.#blocker, this.#blockerChanged);
    if (this.#all) client.unwatch(this.#store.pathOf(this.#name), this.#lineChanged);
    this.#blocker = null;
    this.#all = false;
  }

  readonly #blockerChanged = (): void => {
    this.#blocker = null;
    this.#changed();
  };

  readonly #lineChanged = (): void => {
    this.#all = false;
    this.#changed();
  };
}
