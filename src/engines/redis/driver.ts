/** What this engine asks of a client library. Each library has a driver that does it; the rest of the engine knows no library. */
export interface RedisDriver {
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
   * One connection that subscribes to channels and does not reconnect: `onEnd` is called once when it has ended. While it is
   * being made `cancelled` ends it: libraries set no time limit to a server that accepts a connection and says no more.
   */
  openSubscriber(
    onMessage: (channel: string, message: string) => void,
    onEnd: () => void,
    cancelled: AbortSignal,
  ): Promise<SubscriberConnection>;
  /** A connection of its own for commands that block what is behind them. */
  openPipeline(cancelled: AbortSignal): Promise<PipelineConnection>;
  /** Only of a client that we made: another takes its place. Rejects, and changes nothing, when none can be connected. */
  readonly replace?: () => Promise<void>;
  /** Closes the client. Called only for a client that we made: one that was handed in stays open. */
  close(): Promise<void>;
}

export type Call = (command: readonly string[]) => Promise<unknown>;

export interface SubscriberConnection {
  subscribe(channel: string): Promise<void>;
  unsubscribe(channel: string): Promise<void>;
  /** Answered while the connection lives. */
  ping(): Promise<unknown>;
  close(): void;
}

export interface PipelineConnection {
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

/** A `GlideClient` of Valkey GLIDE 2.3 or later. */
export interface GlideClient {
  customCommand(args: string[], options?: object): Promise<unknown>;
  close(): void;
}

export type RedisClient = IoredisClient | NodeRedisClient | GlideClient;

export function isIoredis(client: RedisClient): client is IoredisClient {
  return "call" in client && typeof client.call === "function" && "pipeline" in client;
}

export function isGlide(client: RedisClient): client is GlideClient {
  return "customCommand" in client && typeof client.customCommand === "function";
}
