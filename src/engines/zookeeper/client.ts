import { CODE, codeText } from "./codes.js";

export { CODE };

/** The calls that the engine makes. Two clients fit: our own (`wire/`), and the native `zookeeper` package (`adapters/native.ts`). */
export interface ZooKeeperClient {
  /** What the server granted; 0 before the first connection. */
  readonly sessionTimeoutMs: number;
  /** Begins a session. Resolves when there is one; what happens to it later is told to the listener. */
  start(listener: (event: SessionEvent) => void): Promise<void>;
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
  /** An ephemeral node in the place of another: in one step where the client can, otherwise both for a moment. */
  replace(from: string, to: string, data: Buffer): Promise<void>;
  /** All or none; null where the client cannot. */
  readonly transact: ((operations: readonly Operation[]) => Promise<void>) | null;
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

/** Called once, at the next change; nothing is told about a session that ended. */
export type Watcher = () => void;

/** `czxid` is null where the client is not told: ask `exists`. */
export type Created = { readonly path: string; readonly czxid: number | null };

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

/** What a server answered, or why none did. */
export class ZooKeeperError extends Error {
  override readonly name = "ZooKeeperError";

  constructor(
    readonly code: number,
    doing: string,
    options?: ErrorOptions,
  ) {
    super(`${codeText(code)} while ${doing}`, options);
  }
}

export function hasCode(error: unknown, ...codes: readonly number[]): boolean {
  return error instanceof ZooKeeperError && codes.includes(error.code);
}

/** A zxid is an epoch and a counter, 32 bits each: a safe integer for the first two million leaders. */
export function zxidNumber(zxid: bigint): number {
  const number = Number(zxid);
  if (!Number.isSafeInteger(number)) throw new Error(`transaction id ${zxid} is too large to be a token`);
  return number;
}
