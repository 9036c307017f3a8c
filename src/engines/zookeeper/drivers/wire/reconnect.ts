import type { ConnectionOptions } from "node:tls";
import type { Chance, Clock, Timer } from "../../../../core/clock.js";
import type { Host } from "../../../../engine-kit/hosts.js";
import type { SessionEvent } from "../../driver.js";
import { adviceOn, CODE, hasCode, ZooKeeperError } from "../../errors.js";
import { Connection, type Dial, dial } from "./connection.js";
import { Hosts, RECONNECT_MAX_MS } from "./hosts.js";
import * as protocol from "./protocol.js";

/** How to reach the servers, and as whom. */
export type SessionSettings = {
  readonly hosts: readonly Host[];
  readonly sessionTimeoutMs: number;
  /** For how long anybody waits for an answer, and for the first connection. */
  readonly callTimeoutMs?: number;
  readonly tls: ConnectionOptions | undefined;
  readonly auth: { readonly scheme: string; readonly secret: string } | undefined;
  readonly clock: Clock;
  readonly chance: Chance;
  /** The network, for tests. */
  readonly dial?: Dial;
};

/** Told to whoever owns the session, beside what happens to it. */
type Owner = {
  told(event: SessionEvent): void;
  /** A connection serves the session; the newest transaction that we knew of before it. */
  connected(connection: Connection, lastZxid: bigint): void;
  changed(type: number, path: string): void;
};

const CLOSE_WITHIN_MS = 2_000;
const NO_SESSION = { sessionId: 0n, password: Buffer.alloc(16) };

/** One session that survives its connections, and is replaced when it ends. */
export class ReconnectingSession {
  timeoutMs = 0;
  /** Null until it was greeted. */
  connection: Connection | null = null;
  /** Why there is no connection, for whoever waited for one in vain. */
  lastCause: Error = new Error("no server has answered yet");
  readonly #settings: SessionSettings;
  readonly #owner: Owner;
  readonly #hosts: Hosts;
  #session: { sessionId: bigint; password: Buffer } = NO_SESSION;
  /** The newest transaction that we know of: no server that is behind it may serve us. */
  #lastZxid = 0n;
  /** When the last connection heard something, and when its server can have heard of us last. */
  #heardAt = 0;
  #usedAt = 0;
  /** Since the last good connection a server ended one without a word: because we know of newer transactions, perhaps. */
  #hungUp = false;
  #toldRefusal = false;
  /** Also while it is being made. */
  #current: Connection | null = null;
  #greetedAt = 0;
  #retry: Timer | null = null;
  #closing = false;
  #started: { resolve(): void; reject(error: Error): void } = { resolve() {}, reject() {} };

  /** As a node's stat names the session that it belongs to. */
  get id(): string {
    return BigInt.asUintN(64, this.#session.sessionId).toString(16);
  }

  constructor(settings: SessionSettings, owner: Owner) {
    this.#settings = settings;
    this.#owner = owner;
    this.#hosts = new Hosts(settings.hosts, settings.chance);
  }

  /** Resolves when a server serves us; rejects when none will, whoever asks again. */
  start(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#started = { resolve, reject };
      this.#connect();
    });
  }

  ask<T>(request: protocol.Request<T>): Promise<T> {
    if (this.connection !== null) return this.connection.ask(request);
    const loss = new ZooKeeperError(CODE.connectionLoss, request.doing, { cause: this.lastCause });
    return Promise.reject(this.#hosts.refusal ?? loss);
  }

  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    if (this.#retry !== null) this.#settings.clock.cancel(this.#retry);
    const current = this.#current;
    const end = (): void => current?.end(new Error("closed"));
    // Its nodes go at once; a server that does not hear it lets the session run out.
    const limit = this.#settings.clock.after(CLOSE_WITHIN_MS, end);
    await this.connection?.ask(protocol.close).catch(() => {});
    this.#settings.clock.cancel(limit);
    end();
  }

  #connect(): void {
    const { clock, tls, sessionTimeoutMs: timeoutMs, callTimeoutMs = Infinity } = this.#settings;
    const { dial: open = dial } = this.#settings;
    const host = this.#hosts.next();
    if (host === undefined || this.#closing) return;
    const sentAt = clock.now();
    const comparing = this.#mustCompare(sentAt);
    const greeting = comparing
      ? { ...NO_SESSION, lastZxid: 0n, timeoutMs }
      : { ...this.#session, lastZxid: this.#lastZxid, timeoutMs };
    const limits = { greetingMs: this.#greetingTimeoutMs(sentAt), answerMs: callTimeoutMs };
    const connection: Connection = new Connection(host, open(host, tls), greeting, limits, clock, {
      greeted: (handshake) => this.#greeted(connection, handshake, sentAt, comparing),
      changed: (type, path) => this.#owner.changed(type, path),
      closed: (cause) => this.#closed(connection, cause),
    });
    this.#current = connection;
  }

  /** Time to try all of them before the session ends, and the first time before whoever connects gives up. */
  #greetingTimeoutMs(now: number): number {
    const { sessionTimeoutMs, callTimeoutMs = Infinity } = this.#settings;
    const allMs = this.timeoutMs;
    if (allMs === 0) return Math.min(sessionTimeoutMs, callTimeoutMs) / this.#hosts.count;
    const leftMs = this.#heardAt + allMs - now;
    return (leftMs > 0 ? Math.max(leftMs, allMs / 3) : allMs) / this.#hosts.count;
  }

  /**
   * A server whose transactions are behind those that we know of ends the connection without a word. That may be a follower
   * that lags, or one that is not ready; after a restore from a backup it is all of them, and for ever. So once our
   * session is over by our own clock, and whenever we begin another, a session of its own asks for the newest
   * transaction. Before that there is nothing to gain: no hold lives longer, and an old session may still be resumed.
   */
  #mustCompare(now: number): boolean {
    if (this.#lastZxid === 0n) return false;
    return this.#session === NO_SESSION || (this.#hungUp && now >= this.#usedAt + this.timeoutMs);
  }

  #greeted(connection: Connection, handshake: protocol.Handshake, sentAt: number, comparing: boolean): void {
    if (handshake.timeoutMs <= 0 || handshake.sessionId === 0n) {
      if (!comparing) this.#dropSession();
      return connection.end(new Error("the session ended while there was no connection"));
    }
    const authenticated = this.#authenticate(connection);
    if (comparing) this.#compare(connection, handshake, sentAt, authenticated);
    else this.#begin(connection, handshake, sentAt, authenticated);
  }

  /** A write that a majority confirms is the newest transaction of all. Tokens are such numbers: they must not go back. */
  #compare(connection: Connection, handshake: protocol.Handshake, sentAt: number, authenticated: Promise<void>): void {
    const write = protocol.multi([{ kind: "check", path: "/" }], []);
    const compared = (): void => {
      if (connection.lastZxid < this.#lastZxid) {
        const [here, seen] = [connection.lastZxid, this.#lastZxid].map((zxid) => `0x${zxid.toString(16)}`);
        const doing = `beginning a session: its newest transaction is ${here}, and ${seen} was seen before`;
        return connection.leave(new ZooKeeperError(CODE.wentBack, doing));
      }
      if (this.#session === NO_SESSION) return this.#begin(connection, handshake, sentAt, authenticated);
      // It can serve the session that we have.
      this.#hungUp = false;
      this.#hosts.again(connection.host);
      connection.leave(new Error("the server is asked again"));
    };
    connection.ask(write).then(compared, (error: Error) => connection.end(error));
  }

  #begin(
    connection: Connection,
    { timeoutMs, sessionId, password }: protocol.Handshake,
    sentAt: number,
    authenticated: Promise<void>,
  ): void {
    if (connection !== this.#current) return;
    const fresh = this.#session === NO_SESSION;
    this.#greetedAt = this.#settings.clock.now();
    this.#session = { sessionId, password };
    this.#hungUp = false;
    this.timeoutMs = timeoutMs;
    this.connection = connection;
    this.#owner.connected(connection, this.#lastZxid);
    this.#owner.told({ kind: "connected", sentAt, fresh });
    authenticated.then(
      () => {
        this.#hosts.good();
        this.#toldRefusal = false;
        this.#started.resolve();
      },
      () => {},
    );
  }

  #dropSession(): void {
    if (this.#session === NO_SESSION) return;
    this.#session = NO_SESSION;
    this.#owner.told({ kind: "ended" });
  }

  /** Before anything else is sent. A server that does not accept it closes the connection. */
  #authenticate(connection: Connection): Promise<void> {
    const { auth } = this.#settings;
    if (auth === undefined) return Promise.resolve();
    const asked = connection.ask(protocol.auth(auth.scheme, auth.secret), protocol.XID.auth);
    asked.catch((error: Error) => connection.end(error));
    return asked;
  }

  #closed(connection: Connection, cause: Error): void {
    const { host, silent } = connection;
    const wasConnected = this.connection === connection;
    this.#current = null;
    this.connection = null;
    this.lastCause = cause;
    if (connection.hungUp) this.#hungUp = true;
    if (wasConnected) {
      this.#lastZxid = connection.lastZxid;
      [this.#heardAt, this.#usedAt] = [connection.heardAt, connection.usedAt];
      this.#owner.told({ kind: "disconnected" });
    }
    if (this.#closing) return;
    if (wasConnected && silent)
      this.#warn(`ZooKeeper at ${host.host}:${host.port}: ${cause.message}; the connection is replaced`);
    const lasted = wasConnected && this.#settings.clock.now() - this.#greetedAt > RECONNECT_MAX_MS;
    const delayMs = this.#hosts.failed(host, cause, lasted);
    this.#tellRefusal();
    this.#retry = this.#settings.clock.after(delayMs, () => this.#connect());
  }

  /** Whoever connects is told by the error, whoever is connected by a warning, and each call is refused until it is over. */
  #tellRefusal(): void {
    const { refusal } = this.#hosts;
    if (refusal === null) return;
    if (hasCode(refusal, CODE.wentBack)) this.#dropSession();
    this.#started.reject(refusal);
    if (this.#toldRefusal) return;
    this.#toldRefusal = true;
    this.#warn(`ZooKeeper refuses this client: ${refusal.message}. ${adviceOn((refusal as ZooKeeperError).code)}`);
  }

  #warn(message: string): void {
    this.#owner.told({ kind: "warning", message });
  }
}
