// Beyond the common files of an engine: queues that are known without being read, as long as nobody else joins them.

import type { QueueEntry } from "../../queue/queue.js";
import type { Watcher } from "./driver.js";
import type { Session } from "./session.js";

/** So many names are followed; of others the queue is read for each claim. */
const FOLLOWED_MAX = 1_000;

/** A name's folders: of its claims, and of its tombstones. */
export type Folders = { readonly claims: string; readonly tombstones: string };

/**
 * What this client knows of one queue. A folder counts what is created in it: a claim of ours that got the next number shows that
 * nobody else came since the queue was read. Who left is known of those that are watched: our own, too, may be removed by another
 * client. So these are all that are there.
 *
 * A folder that is made anew counts anew, its data may get a capacity, and tombstones may come: all of that is watched, and a
 * session hears of a change before it hears of what came after it.
 */
export class FollowedQueue {
  readonly folders: Folders;
  /** In the order of arrival. */
  readonly #entries = new Map<string, QueueEntry>();
  /** Those whose end nobody would tell. */
  readonly #unwatched = new Set<string>();
  /** One more each time that something happened which is not known. */
  generation = 0;
  armed = false;
  /** Nobody else can have come. */
  #complete = false;
  /** There may be tombstones. */
  buried = true;
  /** The number that the next one gets. */
  next = 0;
  /** So many of ours are being created: nobody watches them yet. */
  coming = 0;

  /** Told when something that is watched has changed. */
  readonly changed: Watcher;

  readonly #isWatched: (key: string) => boolean;

  /** `isWatched`: of the paths of our own claims. */
  constructor(folders: Folders, isWatched: (path: string) => boolean, changed: (queue: FollowedQueue) => void) {
    this.folders = folders;
    this.#isWatched = (key) => isWatched(`${folders.claims}/${key}`);
    this.changed = () => changed(this);
  }

  /** Something may have happened that is not known. */
  forget(): void {
    this.generation += 1;
    this.armed = false;
    this.#complete = false;
    this.buried = true;
    this.next = 0;
    this.#entries.clear();
    this.#unwatched.clear();
  }

  /** Whether exactly these are there, without reading. */
  get isKnown(): boolean {
    return this.#complete && this.#unwatched.size === 0;
  }

  get entries(): readonly QueueEntry[] {
    return [...this.#entries.values()];
  }

  /** `since`: the next number when the queue was asked for. Younger ones of ours are there, whether or not they were seen. */
  read(seen: readonly QueueEntry[], since: number): void {
    const younger = this.entries.filter(({ order }) => order >= since);
    const watched = new Set([...this.#entries.keys()].filter((key) => !this.#unwatched.has(key)));
    this.#entries.clear();
    this.#unwatched.clear();
    for (const entry of [...seen, ...younger]) {
      const { key, order } = entry;
      if (this.#entries.has(key)) continue;
      this.#entries.set(key, entry);
      if (!watched.has(key) && !this.#isWatched(key)) this.#unwatched.add(key);
      this.next = Math.max(this.next, order + 1);
    }
    this.#complete = this.armed;
  }

  /** Ours was created just now. Whether exactly these are there with it; its own end nobody would tell yet. */
  add(entry: QueueEntry): boolean {
    const { key, order } = entry;
    if (this.#entries.has(key)) return this.isKnown;
    if (order !== this.next) this.#complete = false;
    const { isKnown } = this;
    this.next = Math.max(this.next, order + 1);
    this.#entries.set(key, entry);
    this.watch(key, false);
    return isKnown;
  }

  remove(key: string): void {
    this.#entries.delete(key);
    this.#unwatched.delete(key);
  }

  /** From now on its end is told, or is not. */
  watch(key: string, watched: boolean): void {
    if (watched) this.#unwatched.delete(key);
    else if (this.#entries.has(key) && !this.#isWatched(key)) this.#unwatched.add(key);
  }
}

/** The queues that this client follows: those of names that it claims again. */
export class FollowedQueues {
  readonly #session: Session;
  readonly #isWatched: (path: string) => boolean;
  readonly #queues = new Map<string, FollowedQueue>();

  constructor(session: Session, isWatched: (path: string) => boolean) {
    this.#session = session;
    this.#isWatched = isWatched;
  }

  /** By the folder of its claims. */
  get(folder: string): FollowedQueue | undefined {
    return this.#queues.get(folder);
  }

  /** From the next reading on, which is to be sent right after this. */
  follow(folders: Folders): FollowedQueue {
    const { claims } = folders;
    const queue = this.#queues.get(claims) ?? new FollowedQueue(folders, this.#isWatched, (one) => this.#unfollow(one));
    // The name that was asked for last is the last to go.
    this.#queues.delete(claims);
    this.#queues.set(claims, queue);
    const [oldest = queue] = this.#queues.size > FOLLOWED_MAX ? this.#queues.values() : [];
    if (oldest !== queue) this.#unfollow(oldest);
    if (!queue.armed) this.#arm(queue);
    return queue;
  }

  /** Another connection, perhaps of another session: what happened in between is not known. */
  forgetAll(): void {
    for (const queue of this.#queues.values()) queue.forget();
  }

  #arm(queue: FollowedQueue): void {
    queue.armed = true;
    const { generation, folders } = queue;
    const isThere = async (path: string): Promise<boolean> =>
      (await this.#session.read((client) => client.exists(path, queue.changed))) !== null;
    const failed = (): void => {
      if (queue.generation === generation) this.#unfollow(queue);
    };
    Promise.all([isThere(folders.claims), isThere(folders.tombstones)]).then(([claims, tombstones]) => {
      if (!claims) return failed();
      if (queue.generation === generation) queue.buried = tombstones;
    }, failed);
  }

  /** Of a folder that is gone nothing stays watched. */
  #unfollow(queue: FollowedQueue): void {
    queue.forget();
    this.#queues.delete(queue.folders.claims);
    for (const path of Object.values(queue.folders)) this.#session.client.unwatch(path, queue.changed);
  }
}
