import type { ConnectionOptions } from "node:tls";
import type { Chance, Clock, Timer } from "../../../core/clock.js";
import {
  type Children,
  CODE,
  type Created,
  type CreateMode,
  hasCode,
  type Node,
  type Operation,
  type SessionEvent,
  type Stat,
  type Watcher,
  type ZooKeeperClient,
  ZooKeeperError,
} from "../client.js";
import { Connection, type Host } from "./connection.js";
import * as protocol from "./protocol.js";
import { Watches, type WatchKind } from "./watches.js";

export type WireSettings = {
  readonly hosts: readonly Host[];
  readonly sessionTimeoutMs: number;
  /** For how long anybody waits for the first connection. */
  readonly connectWithinMs?: number;
  readonly tls: ConnectionOptions | undefined;
  readonly auth: { readonly scheme: string; readonly secret: string } | undefined;
  readonly acl: readonly protocol.Acl[];
  readonly clock: Clock;
  readonly chance: Chance;
};

const RECONNECT_MIN_MS = 50;
const RECONNECT_MAX_MS = 1_000;
const CLOSE_WITHIN_MS = 2_000;
/** Characters of paths in one packet: with three bytes each still well below the megabyte that a server accepts. */
const WATCHED_AT_ONCE = 128 * 1024;
const NO_SESSION = { sessionId: 0n, password: Buffer.alloc(16) };

/**
 * ZooKeeper's protocol, as much of it as locks need: one session that survives its connections and is replaced when it
 * ends. Nothing is queued while there is no connection, and nothing is sent twice: a call that is not answered fails with
 * "connection loss", and whoever made it finds out what became of it.
 */
export class WireClient implements ZooKeeperClient {
  sessionTimeoutMs = 0;
  readonly #settings: WireSettings;
  readonly #watches = new Watches();
  #listener: (event: SessionEvent) => void = () => {};
  #session: { sessionId: bigint; password: Buffer } = NO_SESSION;
  #lastZxid = 0n;
  /** Null until it was greeted. */
  #connection: Connection | null = null;
  /** Also while it is being made. */
  #current: Connection | null = null;
  #hosts: Host[] = [];
  /** In a row: connections that were not made, or did not last. */
  #failures = 0;
  #greetedAt = 0;
  #retry: Timer | null = null;
  #closing = false;
  #started: () => void = () => {};
  #lastCause: Error = new Error("no server was tried yet");

  constructor(settings: WireSettings) {
    this.#settings = settings;
  }

  /** Why there is no connection, for whoever waited for one in vain. */
  get lastCause(): Error {
    return this.#lastCause;
  }

  start(listener: (event: SessionEvent) => void): Promise<void> {
    this.#listener = listener;
    return new Promise((resolve) => {
      this.#started = resolve;
      this.#connect();
    });
  }

  create(path: string, data: Buffer, mode: CreateMode): Promise<Created> {
    return this.#ask(protocol.create(path, data, mode, this.#settings.acl));
  }

  remove(path: string, version?: number): Promise<void> {
    return this.#ask(protocol.remove(path, version));
  }

  set(path: string, data: Buffer, version?: number): Promise<Stat> {
    return this.#ask(protocol.set(path, data, version));
  }

  get(path: string, watcher?: Watcher): Promise<Node | null> {
    return this.#look(protocol.get(path, watcher !== undefined), "node", path, watcher);
  }

  exists(path: string, watcher?: Watcher): Promise<Stat | null> {
    return this.#look(protocol.exists(path, watcher !== undefined), "presence", path, watcher);
  }

  children(path: string, watcher?: Watcher): Promise<Children | null> {
    return this.#look(protocol.children(path, watcher !== undefined), "children", path, watcher);
  }

  unwatch(path: string, watcher: Watcher): void {
    const [node, presence] = [this.#drop("node", path, watcher), this.#drop("presence", path, watcher)];
    // One watch on the server stands for both.
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

  async replace(from: string, to: string, data: Buffer): Promise<void> {
    await this.transact([
      { kind: "create", path: to, data, mode: "ephemeral" },
      { kind: "remove", path: from, version: -1 },
    ]);
  }

  readonly transact = async (operations: readonly Operation[]): Promise<void> => {
    const request = protocol.multi(operations, this.#settings.acl);
    const failed = await this.#ask(request);
    if (failed !== null) throw new ZooKeeperError(firstCode(failed), request.doing);
  };

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    if (this.#retry !== null) this.#settings.clock.cancel(this.#retry);
    const current = this.#current;
    const end = (): void => current?.end(new Error("closed"));
    // Its nodes go at once; a server that does not hear it lets the session run out.
    const limit = this.#settings.clock.after(CLOSE_WITHIN_MS, end);
    await this.#connection?.ask(protocol.close).catch(() => {});
    this.#settings.clock.cancel(limit);
    end();
    this.#watches.clear();
  }

  #ask<T>(request: protocol.Request<T>): Promise<T> {
    if (this.#connection !== null) return this.#connection.ask(request);
    return Promise.reject(new ZooKeeperError(CODE.connectionLoss, request.doing, { cause: this.#lastCause }));
  }

  async #look<T>(request: protocol.Request<T>, kind: WatchKind, path: string, watcher?: Watcher): Promise<T | null> {
    if (watcher !== undefined) this.#watches.add(kind, path, watcher);
    try {
      const answer = await this.#ask(request);
      if (watcher !== undefined && kind === "presence") this.#watches.found(path, watcher);
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
    this.#connection?.ask(protocol.removeWatches(path, kind)).catch(() => {});
  }

  #connect(): void {
    const { clock, tls, hosts, sessionTimeoutMs, connectWithinMs } = this.#settings;
    const host = this.#nextHost();
    if (host === undefined || this.#closing) return;
    const sentAt = clock.now();
    const greeting = { ...this.#session, lastZxid: this.#lastZxid, timeoutMs: sessionTimeoutMs };
    // Time to try all of them before the session ends, and the first time before whoever connects gives up.
    const withinMs = this.sessionTimeoutMs || Math.min(sessionTimeoutMs, connectWithinMs ?? Infinity);
    const patienceMs = withinMs / hosts.length;
    const connection: Connection = new Connection(host, tls, greeting, patienceMs, clock, {
      greeted: (handshake) => this.#greeted(connection, handshake, sentAt),
      changed: (type, path) => this.#watches.changed(type, path),
      closed: (cause) => this.#closed(connection, cause),
    });
    this.#current = connection;
  }

  /** Each in turn, in an order of chance: not all clients go to the first one. */
  #nextHost(): Host | undefined {
    if (this.#hosts.length === 0) {
      const drawn = this.#settings.hosts.map((host) => ({ host, at: this.#settings.chance.fraction() }));
      this.#hosts = drawn.toSorted((a, b) => a.at - b.at).map(({ host }) => host);
    }
    return this.#hosts.pop();
  }

  #greeted(connection: Connection, { timeoutMs, sessionId, password }: protocol.Handshake, sentAt: number): void {
    const fresh = this.#session.sessionId === 0n;
    if (timeoutMs <= 0 || sessionId === 0n) {
      this.#session = NO_SESSION;
      this.#watches.clear();
      this.#listener({ kind: "ended" });
      return connection.end(new Error("the session ended while there was no connection"));
    }
    this.#greetedAt = this.#settings.clock.now();
    this.#session = { sessionId, password };
    this.sessionTimeoutMs = timeoutMs;
    this.#connection = connection;
    this.#authenticate(connection);
    this.#watchAgain(connection);
    this.#listener({ kind: "connected", sentAt, fresh });
    this.#started();
  }

  #authenticate(connection: Connection): void {
    const { auth } = this.#settings;
    if (auth === undefined) return;
    // A server that does not accept it closes the connection; it will be the same the next time.
    connection.ask(protocol.auth(auth.scheme, auth.secret), protocol.XID.auth).catch((error: Error) => {
      if (!hasCode(error, CODE.connectionLoss)) connection.end(error);
    });
  }

  #watchAgain(connection: Connection): void {
    const kinds = ["node", "presence", "children"] as const;
    let some: string[][] = kinds.map(() => []);
    let length = 0;
    const send = (): void => {
      // A connection that breaks meanwhile is followed by another, which sets them again.
      if (length > 0)
        connection.ask(protocol.setWatches(this.#lastZxid, some), protocol.XID.setWatches).catch(() => {});
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

  #closed(connection: Connection, cause: Error): void {
    if (connection !== this.#current) return;
    this.#current = null;
    this.#lastCause = cause;
    this.#lastZxid = connection.lastZxid;
    const wasConnected = this.#connection === connection;
    this.#connection = null;
    if (wasConnected) this.#listener({ kind: "disconnected" });
    if (this.#closing) return;
    // At once to the next server; when all of them failed, after a pause that grows.
    const lasted = wasConnected && this.#settings.clock.now() - this.#greetedAt > RECONNECT_MAX_MS;
    this.#failures = lasted ? 1 : this.#failures + 1;
    const rounds = Math.floor(this.#failures / this.#settings.hosts.length);
    const mostMs = rounds === 0 ? 0 : Math.min(RECONNECT_MAX_MS, RECONNECT_MIN_MS * 2 ** Math.min(rounds, 10));
    const delayMs = mostMs * (0.5 + this.#settings.chance.fraction() / 2);
    this.#retry = this.#settings.clock.after(delayMs, () => this.#connect());
  }
}

/** The parts that are not to blame say "runtime inconsistency"; those before the culprit say nothing. */
function firstCode(codes: readonly number[]): number {
  return codes.find((code) => code !== 0 && code !== -2) ?? CODE.connectionLoss;
}
