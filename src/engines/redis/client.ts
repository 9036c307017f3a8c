/**
 * What this engine asks of a client library, in one place. Each library has an adapter that does it; the rest of the
 * engine knows no library.
 */
export interface RedisLike {
  /** The library, for messages. */
  readonly library: string;
  readonly topology: "single" | "sentinel" | "cluster";
  /** What the library itself puts before every key. */
  readonly keyPrefix: string;
  /** Whether the library may send a command again on its own, after a reconnect (`pitfalls.md` 63). */
  readonly resends: boolean;
  /** A call would fail now, and nothing of it would be sent. */
  readonly offline: boolean;
  /** False while the library looks for a connection: what is not answered then is no silence. */
  readonly connected: boolean;
  /** One command. In a Cluster it goes to the primary of `key`, or to any node when there is none. */
  call(key: string | null, command: readonly string[]): Promise<unknown>;
  /** One way in for each primary: one, or all of a Cluster's. */
  primaries(): Promise<readonly Call[]>;
  /**
   * One connection that hears channels and is never tried again by itself: `ended` is called once when it is over. While it
   * is being made `unwanted` ends it: libraries set no time limit to a server that accepts a connection and says no more.
   */
  hear(heard: (channel: string, message: string) => void, ended: () => void, unwanted: AbortSignal): Promise<Hearing>;
  /** A connection of its own for commands that block what is behind them. */
  lane(unwanted: AbortSignal): Promise<Lane>;
  /** Only of a client of our own: another takes its place. Rejects, and changes nothing, when none can be connected. */
  readonly replace?: () => Promise<void>;
  /** Ends the client that was handed in. Only for a client of our own. */
  close(): Promise<void>;
}

export type Call = (command: readonly string[]) => Promise<unknown>;

export interface Hearing {
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): Promise<void>;
  /** Answered while the connection lives. */
  ping(): Promise<unknown>;
  close(): void;
}

export interface Lane {
  /** In one go, on one connection; the answers or errors in order. In a Cluster all go to the primary of `key`. */
  pipeline(key: string, commands: readonly (readonly string[])[]): Promise<readonly unknown[]>;
  close(): void;
}

/** An ioredis 5 or 6 client: `Redis`, with or without Sentinel, or `Cluster`. */
export interface IoredisClient {
  call(command: string, ...args: string[]): Promise<unknown>;
  pipeline(commands?: unknown[][]): unknown;
  duplicate(...args: never[]): unknown;
}

/** A node-redis 5 or 6 client, connected: made by `createClient`, `createSentinel` or `createCluster`. */
export interface NodeRedisClient {
  sendCommand(...args: never[]): Promise<unknown>;
  /** A Sentinel client of version 5 does not have it. */
  duplicate?(...args: never[]): unknown;
  connect(): Promise<unknown>;
}

export type RedisClient = IoredisClient | NodeRedisClient;

export function isIoredis(client: RedisClient): client is IoredisClient {
  return "call" in client && typeof client.call === "function" && "pipeline" in client;
}
