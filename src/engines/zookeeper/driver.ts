/** The calls that the engine makes of a client. `drivers/wire/` is our own; another that has these methods will do. */
export interface ZooKeeperDriver {
  /** Why there is no connection, for whoever waited for one in vain. */
  readonly lastCause?: Error;
  /** What the server granted; 0 before the first connection. */
  readonly sessionTimeoutMs: number;
  /** As `ephemeralOwner` names it. */
  readonly sessionId: string;
  /**
   * Begins a session, unless there is one already. Resolves when there is one; what happens to it is told to the listener,
   * which is first told of the connection.
   */
  start(listener: (event: SessionEvent) => void): Promise<void>;
  /** The listener is told no more. */
  stop(listener: (event: SessionEvent) => void): void;
  create(path: string, data: Buffer, mode: CreateMode): Promise<Created>;
  /** Whatever its version, unless one is given. */
  remove(path: string, version?: number): Promise<void>;
  set(path: string, data: Buffer, version?: number): Promise<Stat>;
  /** Null when there is no such node; then a watcher is told of nothing. */
  get(path: string, watcher?: Watcher): Promise<Node | null>;
  /** Its watcher is also told when the node appears. */
  exists(path: string, watcher?: Watcher): Promise<Stat | null>;
  children(path: string, watcher?: Watcher): Promise<Children | null>;
  /** The watcher is told no more. */
  unwatch(path: string, watcher: Watcher): void;
  /** A write that changes nothing and that a majority has to confirm: which of these nodes exist? */
  confirm(paths: readonly string[]): Promise<readonly boolean[]>;
  /** All or none. */
  transact(operations: readonly Operation[]): Promise<void>;
  /** Ends the session, and with it its nodes. */
  close(): Promise<void>;
}

export type SessionEvent =
  /** `sentAt`: when this was asked for. `fresh`: a session that did not exist before, which a majority knows of. */
  | { readonly kind: "connected"; readonly sentAt: number; readonly fresh: boolean }
  | { readonly kind: "disconnected" }
  /** Its nodes are gone. The client begins another session by itself. */
  | { readonly kind: "ended" }
  /** Nothing changed, but somebody should know. */
  | { readonly kind: "warning"; readonly message: string };

export type CreateMode = "ephemeral" | "ephemeral-sequential" | "container" | "persistent";

/** Called once, at the next change: whether the node is gone. Nothing is told about a session that ended. */
export type Watcher = (deleted?: boolean) => void;

export type Created = { readonly path: string; readonly czxid: number };

export type Stat = {
  readonly czxid: number;
  readonly mzxid: number;
  readonly version: number;
  /** Hexadecimal; "0" for a node that belongs to no session. */
  readonly ephemeralOwner: string;
};
export type Node = { readonly data: Buffer; readonly stat: Stat };
export type Children = { readonly names: readonly string[]; readonly stat: Stat };

export type Operation =
  | { readonly kind: "create"; readonly path: string; readonly data: Buffer; readonly mode: CreateMode }
  | { readonly kind: "set"; readonly path: string; readonly data: Buffer; readonly version: number }
  | { readonly kind: "remove"; readonly path: string; readonly version: number }
  | { readonly kind: "check"; readonly path: string; readonly version?: number };
