import type {
  Children,
  Created,
  CreateMode,
  Node,
  Operation,
  SessionEvent,
  Stat,
  Watcher,
  ZooKeeperDriver,
} from "../../driver.js";
import { CODE, hasCode, ZooKeeperError } from "../../errors.js";
import type { Connection } from "./connection.js";
import * as protocol from "./protocol.js";
import { ReconnectingSession, type SessionSettings } from "./reconnect.js";
import { Watches, type WatchKind } from "./watches.js";

/** As for the session, and who may use the nodes that we create. */
export type WireSettings = SessionSettings & { readonly acl: readonly protocol.Acl[] };

/** Characters of paths in one packet: with three bytes each still well below the megabyte that a server accepts. */
const WATCHED_AT_ONCE = 128 * 1024;

/**
 * ZooKeeper's protocol, as much of it as locks need: one session that survives its connections and is replaced when it
 * ends. Nothing is queued while there is no connection, and nothing is sent twice: a call that is not answered fails with
 * "connection loss", and whoever made it finds out what became of it.
 */
export class WireClient implements ZooKeeperDriver {
  readonly #acl: readonly protocol.Acl[];
  readonly #watches = new Watches();
  readonly #session: ReconnectingSession;
  readonly #listeners = new Set<(event: SessionEvent) => void>();
  #starting: Promise<void> | null = null;
  /** What there is to tell to whoever listens later. */
  #connected: SessionEvent | null = null;

  constructor(settings: WireSettings) {
    this.#acl = settings.acl;
    this.#session = new ReconnectingSession(settings, {
      told: (event) => {
        if (event.kind === "ended") this.#watches.clear();
        if (event.kind !== "warning") this.#connected = event.kind === "connected" ? event : null;
        for (const listener of this.#listeners) listener(event);
      },
      connected: (connection, lastZxid) => this.#watchAgain(connection, lastZxid),
      changed: (type, path) => this.#watches.changed(type, path),
    });
  }

  get sessionTimeoutMs(): number {
    return this.#session.timeoutMs;
  }

  get sessionId(): string {
    return this.#session.id;
  }

  /** Why there is no connection, for whoever waited for one in vain. */
  get lastCause(): Error {
    return this.#session.lastCause;
  }

  start(listener: (event: SessionEvent) => void): Promise<void> {
    this.#listeners.add(listener);
    if (this.#connected !== null) listener(this.#connected);
    return (this.#starting ??= this.#session.start());
  }

  stop(listener: (event: SessionEvent) => void): void {
    this.#listeners.delete(listener);
  }

  create(path: string, data: Buffer, mode: CreateMode): Promise<Created> {
    return this.#ask(protocol.create(path, data, mode, this.#acl));
  }

  remove(path: string, version?: number): Promise<void> {
    return this.#ask(protocol.remove(path, version));
  }

  set(path: string, data: Buffer, version?: number): Promise<Stat> {
    return this.#ask(protocol.set(path, data, version));
  }

  get(path: string, watcher?: Watcher): Promise<Node | null> {
    return this.#read(protocol.get(path, watcher !== undefined), "node", path, watcher);
  }

  exists(path: string, watcher?: Watcher): Promise<Stat | null> {
    return this.#read(protocol.exists(path, watcher !== undefined), "presence", path, watcher);
  }

  children(path: string, watcher?: Watcher): Promise<Children | null> {
    return this.#read(protocol.children(path, watcher !== undefined), "children", path, watcher);
  }

  unwatch(path: string, watcher: Watcher): void {
    const [node, presence] = [this.#drop("node", path, watcher), this.#drop("presence", path, watcher)];
    // One watch on the server serves both.
    const others = this.#watches.has("node", path) || this.#watches.has("presence", path);
    if ((node || presence) && !others) this.#forget(path, "node");
    if (this.#drop("children", path, watcher)) this.#forget(path, "children");
  }

  async confirm(paths: readonly string[]): Promise<readonly boolean[]> {
    const left = new Set(paths);
    for (;;) {
      // The root is always there; the question goes to the leader all the same.
      const checks = [...left, ...(left.size === 0 ? ["/"] : [])].map((path) => ({ kind: "check", path }) as const);
      const answer = await this.#ask(protocol.multi(checks, []));
      if (answer === null || left.size === 0) return paths.map((path) => left.has(path));
      const missing = checks[answer.indexOf(CODE.noNode)];
      if (missing === undefined) throw new ZooKeeperError(firstCode(answer), "confirming that nodes exist");
      left.delete(missing.path);
    }
  }

  async transact(operations: readonly Operation[]): Promise<void> {
    const request = protocol.multi(operations, this.#acl);
    const failed = await this.#ask(request);
    if (failed !== null) throw new ZooKeeperError(firstCode(failed), request.doing);
  }

  close(): Promise<void> {
    return this.#session.close();
  }

  #ask<T>(request: protocol.Request<T>): Promise<T> {
    return this.#session.ask(request);
  }

  async #read<T>(request: protocol.Request<T>, kind: WatchKind, path: string, watcher?: Watcher): Promise<T | null> {
    if (watcher !== undefined) this.#watches.add(kind, path, watcher);
    try {
      const answer = await this.#ask(request);
      if (watcher !== undefined) this.#watches.found(path, watcher);
      return answer;
    } catch (error) {
      const absent = hasCode(error, CODE.noNode);
      // A node that is not there is watched only by whoever asks for its presence.
      if (watcher !== undefined && !(absent && kind === "presence")) this.#watches.remove(kind, path, watcher);
      if (absent) return null;
      throw error;
    }
  }

  #drop(kind: WatchKind, path: string, watcher: Watcher): boolean {
    return this.#watches.remove(kind, path, watcher);
  }

  /** Without it watches on what lives long pile up in the server. It may have told us already: no matter. */
  #forget(path: string, kind: "children" | "node"): void {
    this.#session.connection?.ask(protocol.removeWatches(path, kind)).catch(() => {});
  }

  #watchAgain(connection: Connection, lastZxid: bigint): void {
    const kinds = ["node", "presence", "children"] as const;
    let some: string[][] = kinds.map(() => []);
    let length = 0;
    const send = (): void => {
      // A connection that breaks meanwhile is followed by another, which sets them again.
      if (length > 0) connection.ask(protocol.setWatches(lastZxid, some), protocol.XID.setWatches).catch(() => {});
      some = kinds.map(() => []);
      length = 0;
    };
    kinds.forEach((kind, index) => {
      for (const path of this.#watches.paths(kind)) {
        some[index]?.push(path);
        length += path.length;
        if (length >= WATCHED_AT_ONCE) send();
      }
    });
    send();
  }
}

/** The parts that are not to blame say "runtime inconsistency"; those before the culprit say nothing. */
function firstCode(codes: readonly number[]): number {
  return codes.find((code) => code !== 0 && code !== CODE.runtimeInconsistency) ?? CODE.connectionLoss;
}
