import { type Clock, SystemClock } from "../../../core/clock.js";
import {
  type Children,
  CODE,
  type Created,
  type CreateMode,
  hasCode,
  type Node,
  type SessionEvent,
  type Stat,
  type Watcher,
  type ZooKeeperClient,
  ZooKeeperError,
} from "../client.js";

/** The class that the package `zookeeper` (7.x) exports. */
export type NativeZooKeeper = new (config: object) => Native;

export type NativeOptions = {
  /** `host:port,host:port,…` */
  readonly connect: string;
  /** How long the servers wait for a heartbeat; 20 s unless said otherwise. */
  readonly sessionTimeoutMs?: number;
  readonly clock?: Clock;
};

type Answered<Args extends unknown[]> = (code: number, error: string, ...args: Args) => void;
type Told = (type: number, state: number, path: string) => void;

/** The calls made of it. All return a code at once: 0, or why nothing was sent. */
interface Native {
  readonly timeout: number;
  on(event: string, listener: (...args: never[]) => void): unknown;
  init(config: object): unknown;
  close(): unknown;
  a_create(path: string, data: Buffer, flags: number, done: Answered<[path: string]>): number;
  a_delete_(path: string, version: number, done: Answered<[]>): number;
  a_set(path: string, data: Buffer, version: number, done: Answered<[stat: Stat]>): number;
  a_get(path: string, watch: boolean, done: Answered<[stat: Stat, data: Buffer | null]>): number;
  aw_get(path: string, told: Told, done: Answered<[stat: Stat, data: Buffer | null]>): number;
  a_exists(path: string, watch: boolean, done: Answered<[stat: Stat]>): number;
  aw_exists(path: string, told: Told, done: Answered<[stat: Stat]>): number;
  a_get_children2(path: string, watch: boolean, done: Answered<[names: string[], stat: Stat]>): number;
  aw_get_children2(path: string, told: Told, done: Answered<[names: string[], stat: Stat]>): number;
}

const FLAGS: Record<CreateMode, number> = { persistent: 0, ephemeral: 1, "ephemeral-sequential": 3, container: 4 };
const ANY_VERSION = -1;
/** Told to every watcher when the connection comes or goes; its watch stands. */
const SESSION_EVENT = -1;
/** Where nothing is: removing it changes nothing, and still has to be decided by the leader with a majority. */
const NOWHERE = "/holdfast-is-the-leader-there";
/** A session that ended is replaced, but not in a loop without a pause. */
const AGAIN_MS = 100;

/** ZooKeeper's C client, by way of the package `zookeeper`. It knows no transactions, and nodes are open to everybody. */
export function nativeClient(ZooKeeper: NativeZooKeeper, options: NativeOptions): ZooKeeperClient {
  return new NativeClient(ZooKeeper, options);
}

class NativeClient implements ZooKeeperClient {
  readonly transact = null;
  readonly #make: NativeZooKeeper;
  readonly #options: NativeOptions;
  readonly #clock: Clock;
  #listener: (event: SessionEvent) => void = () => {};
  #native: Native | null = null;
  #connected = false;
  #closed = false;
  #started: () => void = () => {};
  readonly #watchers = new Map<string, Set<Watcher>>();

  constructor(make: NativeZooKeeper, options: NativeOptions) {
    this.#make = make;
    this.#options = options;
    this.#clock = options.clock ?? new SystemClock();
  }

  get sessionTimeoutMs(): number {
    return this.#native?.timeout ?? 0;
  }

  start(listener: (event: SessionEvent) => void): Promise<void> {
    this.#listener = listener;
    return new Promise((resolve) => {
      this.#started = resolve;
      this.#begin();
    });
  }

  async create(path: string, data: Buffer, mode: CreateMode): Promise<Created> {
    const [made] = await this.#ask<[string]>(`creating ${path}`, (native, done) =>
      native.a_create(path, data, FLAGS[mode], done),
    );
    return { path: made, czxid: null };
  }

  async remove(path: string, version = ANY_VERSION): Promise<void> {
    // oxlint-disable-next-line no-underscore-dangle
    await this.#ask<[]>(`removing ${path}`, (native, done) => native.a_delete_(path, version, done));
  }

  async set(path: string, data: Buffer, version = ANY_VERSION): Promise<Stat> {
    const [stat] = await this.#ask<[Stat]>(`writing ${path}`, (native, done) =>
      native.a_set(path, data, version, done),
    );
    return stat;
  }

  get(path: string, watcher?: Watcher): Promise<Node | null> {
    return this.#look(async () => {
      const [stat, data] = await this.#ask<[Stat, Buffer | null]>(`reading ${path}`, (native, done) =>
        watcher === undefined ? native.a_get(path, false, done) : native.aw_get(path, this.#watch(path, watcher), done),
      );
      return { stat, data: data ?? Buffer.alloc(0) };
    });
  }

  exists(path: string, watcher?: Watcher): Promise<Stat | null> {
    return this.#look(async () => {
      const [stat] = await this.#ask<[Stat]>(`looking for ${path}`, (native, done) =>
        watcher === undefined
          ? native.a_exists(path, false, done)
          : native.aw_exists(path, this.#watch(path, watcher), done),
      );
      return stat;
    });
  }

  children(path: string, watcher?: Watcher): Promise<Children | null> {
    return this.#look(async () => {
      const [names, stat] = await this.#ask<[string[], Stat]>(`listing ${path}`, (native, done) =>
        watcher === undefined
          ? native.a_get_children2(path, false, done)
          : native.aw_get_children2(path, this.#watch(path, watcher), done),
      );
      return { names, stat };
    });
  }

  /** The server goes on watching until the next change: this client cannot take a watch back. */
  unwatch(path: string, watcher: Watcher): void {
    const watchers = this.#watchers.get(path);
    watchers?.delete(watcher);
    if (watchers?.size === 0) this.#watchers.delete(path);
  }

  async confirm(paths: readonly string[]): Promise<readonly boolean[]> {
    const [, ...stats] = await Promise.all([
      this.remove(NOWHERE).catch((error: unknown) => {
        if (!hasCode(error, CODE.noNode, CODE.noAuth)) throw error;
      }),
      ...paths.map((path) => this.exists(path)),
    ]);
    return stats.map((stat) => stat !== null);
  }

  async replace(from: string, to: string, data: Buffer): Promise<void> {
    await this.create(to, data, "ephemeral");
    try {
      await this.remove(from);
    } catch (error) {
      // Somebody took it out: nothing may come in its place.
      if (hasCode(error, CODE.noNode)) await this.remove(to);
      throw error;
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#connected = false;
    this.#native?.close();
    this.#watchers.clear();
  }

  #begin(): void {
    if (this.#closed) return;
    let sentAt = this.#clock.now();
    let fresh = true;
    const config = { connect: this.#options.connect, timeout: this.#options.sessionTimeoutMs ?? 20_000 };
    const native = new this.#make(config);
    this.#native = native;
    native.on("connect", () => {
      if (this.#native !== native || this.#closed) return;
      this.#connected = true;
      this.#listener({ kind: "connected", sentAt, fresh });
      fresh = false;
      this.#started();
    });
    native.on("connecting", () => {
      // When it will ask again is not told: not before now.
      sentAt = this.#clock.now();
      if (this.#native === native && !fresh) this.#lost();
    });
    native.on("close", () => {
      if (this.#native !== native || this.#closed) return;
      this.#native = null;
      this.#lost();
      this.#watchers.clear();
      if (!fresh) this.#listener({ kind: "ended" });
      this.#clock.after(AGAIN_MS, () => this.#begin());
    });
    // Level 1 prints errors only: what matters is told by events.
    native.init({ ...config, debug_level: 1 });
  }

  #lost(): void {
    if (!this.#connected) return;
    this.#connected = false;
    this.#listener({ kind: "disconnected" });
  }

  /** Nothing is sent without a connection: the library would keep it for later. */
  #ask<Args extends unknown[]>(doing: string, call: (native: Native, done: Answered<Args>) => number): Promise<Args> {
    return new Promise((resolve, reject) => {
      if (this.#native === null || !this.#connected) return reject(new ZooKeeperError(CODE.connectionLoss, doing));
      const done: Answered<Args> = (code, _error, ...args) =>
        code === 0 ? resolve(args) : reject(new ZooKeeperError(code, doing));
      const code = call(this.#native, done);
      // Nothing was sent: a path or data that it does not take, or a handle that is of no more use.
      if (code !== 0) reject(new ZooKeeperError(code, doing));
    });
  }

  async #look<T>(ask: () => Promise<T>): Promise<T | null> {
    try {
      return await ask();
    } catch (error) {
      if (hasCode(error, CODE.noNode)) return null;
      throw error;
    }
  }

  #watch(path: string, watcher: Watcher): Told {
    const watchers = this.#watchers.get(path) ?? new Set();
    this.#watchers.set(path, watchers.add(watcher));
    return (type) => {
      if (type === SESSION_EVENT || !this.#watchers.get(path)?.has(watcher)) return;
      this.unwatch(path, watcher);
      watcher();
    };
  }
}
