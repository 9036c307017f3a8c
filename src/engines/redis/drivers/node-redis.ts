import { UnsupportedError } from "../../../core/errors.js";
import type { Call, NodeRedisClient, PipelineConnection, RedisDriver, SubscriberConnection } from "../driver.js";
import type { RedisUrl } from "../url.js";
import { CONNECT_TIMEOUT_MS, type ConnectLimits, connectDriver, connectOrEnd, reconnectDelayMs } from "./connect.js";

/** What is used of node-redis 5 and 6. The three kinds of client take their arguments differently. */
interface Connection extends NodeRedisClient {
  readonly options?: { readonly socket?: object; readonly keyPrefix?: string; readonly disableOfflineQueue?: boolean };
  readonly isReady?: boolean;
  sendCommand(...args: unknown[]): Promise<unknown>;
  duplicate?(overrides?: object): Connection;
  connect(): Promise<unknown>;
  destroy(): void | Promise<void>;
  subscribe(channel: string, listener: (message: string, channel: string) => void): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (event?: unknown) => void): unknown;
  off(event: string, listener: (event?: unknown) => void): unknown;
  multi(): Multi;
  /** Only a cluster has these. */
  readonly masters?: readonly object[];
  readonly replicas?: readonly object[];
  nodeClient?(node: object): Promise<Connection>;
  /** Only Sentinel has this. */
  acquire?: unknown;
}

interface Multi {
  addCommand(...args: unknown[]): Multi;
  execAsPipeline(): Promise<readonly unknown[]>;
}

export function nodeRedisDriver(client: NodeRedisClient): RedisDriver {
  return new NodeRedisDriver(client as unknown as Connection);
}

type Create = (options: object) => Connection;
type NodeRedisModule = {
  readonly createClient: Create;
  readonly createCluster: Create;
  readonly createSentinel: Create;
};

/** A client for a URL, connected. */
export async function connectNodeRedis(module: unknown, url: RedisUrl, limits: ConnectLimits): Promise<RedisDriver> {
  const { createClient, createCluster, createSentinel } = module as NodeRedisModule;
  const { hosts, db, tls, master } = url;
  const socket = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    reconnectStrategy: reconnectDelayMs,
    ...(tls === undefined ? {} : { ...tls, tls: true }),
  };
  const account = accountOf(url);
  let client: Connection;
  if (url.topology === "cluster") {
    const rootNodes = hosts.map((host) => ({ socket: { ...socket, ...host } }));
    client = createCluster({ rootNodes, defaults: { ...account, socket } });
  } else if (url.topology === "sentinel") {
    const { sentinelUsername, sentinelPassword } = url;
    const sentinelAccount = {
      ...(sentinelUsername ? { username: sentinelUsername } : {}),
      ...(sentinelPassword ? { password: sentinelPassword } : {}),
    };
    client = createSentinel({
      name: master,
      sentinelRootNodes: hosts,
      nodeClientOptions: { ...account, database: db, socket },
      sentinelClientOptions: { ...sentinelAccount, socket },
    });
  } else {
    client = createClient({ ...account, database: db, disableOfflineQueue: true, socket: { ...socket, ...hosts[0] } });
  }
  return connectDriver(new NodeRedisDriver(client), client, limits);
}

function accountOf({ username, password, credentials }: RedisUrl): object {
  if (credentials !== undefined) return { credentialsProvider: { type: "async-credentials-provider", credentials } };
  return { ...(username ? { username } : {}), ...(password ? { password } : {}) };
}

class NodeRedisDriver implements RedisDriver {
  readonly library = "redis";
  readonly topology: RedisDriver["topology"];
  /** Raw commands are sent as they are. */
  readonly keyPrefix = "";
  /** What was sent and not answered is rejected when the connection closes. */
  readonly resends = false;
  readonly #client: Connection;
  #subscribers = 0;
  /** Ends the subscriptions that are made on this very client. */
  readonly #endsInside = new Set<() => void>();

  constructor(client: Connection) {
    this.#client = client;
    this.topology = typeof client.nodeClient === "function" ? "cluster" : client.acquire ? "sentinel" : "single";
  }

  get offline(): boolean {
    const { options, isReady } = this.#client;
    return options?.disableOfflineQueue === true && this.topology === "single" && !isReady;
  }

  get connected(): boolean {
    // A cluster does not say.
    return this.#client.isReady ?? true;
  }

  call(key: string | null, command: readonly string[]): Promise<unknown> {
    return this.#client.sendCommand(...this.#route(key ?? undefined, command));
  }

  async primaries(): Promise<readonly Call[]> {
    const { masters = [] } = this.#client;
    if (this.topology !== "cluster") return [(command) => this.call(null, command)];
    return masters.map((node): Call => {
      const client = this.#client.nodeClient?.(node);
      return async (command) => (await client)?.sendCommand(command);
    });
  }

  async openSubscriber(
    onMessage: (channel: string, message: string) => void,
    onEnd: () => void,
    cancelled: AbortSignal,
  ): Promise<SubscriberConnection> {
    const duplicate = await this.#duplicate();
    // A Sentinel client that cannot be duplicated subscribes on a connection that it keeps inside.
    const connection = duplicate ?? this.#client;
    const channels = new Set<string>();
    let ended = false;
    const end = (): void => {
      if (ended) return;
      ended = true;
      this.#endsInside.delete(end);
      connection.off("topology-change", changed);
      if (duplicate !== null) destroy(duplicate);
      else for (const channel of channels) void connection.unsubscribe(channel).catch(ignored);
      onEnd();
    };
    // A Sentinel client goes on by itself; begin anew, so that what it missed is asked for. (The first primary that it finds
    // is a change too.)
    const changed = (event?: unknown): void => {
      if ((event as { type?: string } | undefined)?.type === "MASTER_CHANGE") end();
    };
    if (duplicate === null) this.#endsInside.add(end);
    else {
      duplicate.on("error", end);
      duplicate.on("end", end);
      await connectOrEnd(duplicate, cancelled, end);
    }
    connection.on("topology-change", changed);
    return {
      subscribe: async (channel) => {
        channels.add(channel);
        await connection.subscribe(channel, (message) => onMessage(channel, message));
      },
      unsubscribe: async (channel) => {
        channels.delete(channel);
        await connection.unsubscribe(channel);
      },
      ping: () => this.#ping(connection, [...channels][0] ?? ""),
      close: end,
    };
  }

  /** A Sentinel client keeps its subscriptions on a connection inside, which answers to SUBSCRIBE alone. */
  async #ping(connection: Connection, channel: string): Promise<void> {
    if (this.topology !== "sentinel") return void (await connection.sendCommand(["PING"]));
    const probe = `${channel}:probe`;
    await connection.subscribe(probe, ignored);
    await connection.unsubscribe(probe);
  }

  /** A client like ours, not connected yet, that does not reconnect; null where the library has none. */
  async #duplicate(): Promise<Connection | null> {
    const { masters = [], replicas = [] } = this.#client;
    if (this.topology === "sentinel") return this.#client.duplicate?.() ?? null;
    const nodes = [...masters, ...replicas];
    const node = nodes[this.#subscribers++ % nodes.length];
    const client = node === undefined ? this.#client : await this.#client.nodeClient?.(node);
    if (client?.duplicate === undefined) throw new Error("the cluster has no nodes");
    return client.duplicate({ socket: { ...client.options?.socket, reconnectStrategy: false } });
  }

  async openPipeline(cancelled: AbortSignal): Promise<PipelineConnection> {
    const connection = this.#client.duplicate?.();
    if (connection === undefined) {
      throw new UnsupportedError("redis", "ack through Sentinel needs node-redis 6 or ioredis", "Install one of them.");
    }
    connection.on("error", ignored);
    await connectOrEnd(connection, cancelled, () => destroy(connection));
    return {
      pipeline: async (key, commands) => {
        const multi = connection.multi();
        for (const command of commands) multi.addCommand(...this.#route(key, command));
        try {
          return await multi.execAsPipeline();
        } catch (error) {
          // One failed command fails the pipeline; what the others answered stands in the error.
          const { replies } = error as { replies?: readonly unknown[] };
          if (replies === undefined) throw error;
          return replies;
        }
      },
      close: () => destroy(connection),
    };
  }

  async close(): Promise<void> {
    for (const end of this.#endsInside) end();
    destroy(this.#client);
  }

  /** The arguments of `sendCommand` and `addCommand`: a cluster needs the key, and both need to know that it is no mere read. */
  #route(key: string | undefined, command: readonly string[]): unknown[] {
    if (this.topology === "cluster") return [key, false, command];
    return this.topology === "sentinel" ? [false, command] : [command];
  }
}

/** Ends it, whatever state it is in: one that is not open throws, and the end of a Sentinel client may fail later. */
function destroy(connection: Connection): void {
  try {
    Promise.resolve(connection.destroy()).catch(ignored);
  } catch {
    // It was not open.
  }
}

/** Every call that suffers from it rejects by itself; without a listener node-redis throws. */
function ignored(): void {}
