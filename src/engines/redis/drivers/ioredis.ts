import type { Call, IoredisClient, PipelineConnection, RedisDriver, SubscriberConnection } from "../driver.js";
import type { RedisUrl } from "../url.js";
import { CONNECT_TIMEOUT_MS, type ConnectLimits, connectDriver, connectOrEnd, reconnectDelayMs } from "./connect.js";

/** What is used of ioredis 5 and 6. A `Cluster` has `nodes`, and takes its options for a node one level deeper. */
interface Connection extends IoredisClient {
  readonly status: string;
  readonly options: {
    readonly keyPrefix?: string | undefined;
    readonly sentinels?: readonly unknown[] | null | undefined;
    readonly autoResendUnfulfilledCommands?: boolean | undefined;
    readonly enableOfflineQueue?: boolean | undefined;
    /** Of a Cluster: after how long it sends again what a closed connection left unanswered. 0: it does not. */
    readonly retryDelayOnFailover?: number | undefined;
  };
  pipeline(commands: unknown[][]): { exec(): Promise<[Error | null, unknown][] | null> };
  duplicate(...args: unknown[]): Connection;
  connect(): Promise<unknown>;
  disconnect(): void;
  ping(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: never[]) => void): unknown;
  nodes?(role: "master" | "all"): Connection[];
  /** The socket, once there is one. */
  readonly stream?: { cork(): void; uncork(): void } | undefined;
}

export function ioredisDriver(client: IoredisClient): RedisDriver {
  return new IoredisDriver(client as Connection);
}

type IoredisModule = {
  readonly Redis: new (options: object) => Connection;
  readonly Cluster: new (nodes: readonly object[], options: object) => Connection;
};

/** A client for a URL, connected. */
export async function connectIoredis(module: unknown, url: RedisUrl, limits: ConnectLimits): Promise<RedisDriver> {
  const { Redis, Cluster } = module as IoredisModule;
  const { hosts, username, password, db, tls, master } = url;
  const shared = {
    username,
    password,
    tls,
    connectTimeout: CONNECT_TIMEOUT_MS,
    // The library sends nothing twice on its own, and what is unanswered when a connection ends fails at once: the loops of
    // the core ask again under the same id (`pitfalls.md` 63).
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // A primary that became a replica: reconnect, to find the new one.
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  };
  const node = { ...shared, lazyConnect: true, enableOfflineQueue: false, retryStrategy: reconnectDelayMs };
  let client: Connection;
  if (url.topology === "cluster") {
    client = new Cluster(hosts, {
      lazyConnect: true,
      redisOptions: shared,
      clusterRetryStrategy: reconnectDelayMs,
      // What a node refused (MOVED, ASK, TRYAGAIN, CLUSTERDOWN) is sent to another all the same: it was not carried out.
      retryDelayOnFailover: 0,
      slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
    });
  } else if (url.topology === "sentinel") {
    const { sentinelUsername, sentinelPassword } = url;
    client = new Redis({
      ...node,
      db,
      sentinels: hosts,
      name: master,
      sentinelUsername,
      sentinelPassword,
      sentinelTLS: tls,
      enableTLSForSentinelMode: tls !== undefined,
      sentinelRetryStrategy: reconnectDelayMs,
      failoverDetector: true,
    });
  } else {
    client = new Redis({ ...node, ...hosts[0], db });
  }
  return connectDriver(new IoredisDriver(client), client, limits);
}

class IoredisDriver implements RedisDriver {
  readonly library = "ioredis";
  readonly topology: RedisDriver["topology"];
  readonly keyPrefix: string;
  readonly resends: boolean;
  readonly #client: Connection;
  #subscribers = 0;
  #corked = false;

  constructor(client: Connection) {
    const { keyPrefix = "", sentinels } = client.options;
    const { autoResendUnfulfilledCommands = true, retryDelayOnFailover } = client.options;
    this.#client = client;
    this.topology = typeof client.nodes === "function" ? "cluster" : sentinels ? "sentinel" : "single";
    this.keyPrefix = keyPrefix;
    // A Cluster has its own option for what a closed connection left unanswered, whatever its nodes are told.
    this.resends = this.topology === "cluster" ? retryDelayOnFailover !== 0 : autoResendUnfulfilledCommands;
  }

  get offline(): boolean {
    const { options, status } = this.#client;
    // Calls to a client that waits make it connect; a Cluster asks for the nodes first.
    return (
      options.enableOfflineQueue === false && this.topology !== "cluster" && status !== "ready" && status !== "wait"
    );
  }

  get connected(): boolean {
    return this.#client.status === "ready";
  }

  call(_key: string | null, command: readonly string[]): Promise<unknown> {
    if (!this.#corked && this.topology === "cluster") this.#cork();
    return this.#client.call(...(command as [string, ...string[]]));
  }

  /**
   * In a Cluster each name has a call of its own, and the library writes each by itself, which costs both sides more than all
   * the rest of it. What this turn sends to a node goes there in one write.
   */
  #cork(): void {
    const sockets = (this.#client.nodes?.("master") ?? []).map(({ stream }) => stream);
    for (const socket of sockets) socket?.cork();
    this.#corked = true;
    process.nextTick(() => {
      this.#corked = false;
      for (const socket of sockets) socket?.uncork();
    });
  }

  async primaries(): Promise<readonly Call[]> {
    const nodes = this.#client.nodes?.("master") ?? [this.#client];
    return nodes.map(
      (node): Call =>
        ([name = "", ...args]) =>
          node.call(name, ...args),
    );
  }

  async openSubscriber(
    onMessage: (channel: string, message: string) => void,
    onEnd: () => void,
    cancelled: AbortSignal,
  ): Promise<SubscriberConnection> {
    const nodes = this.#client.nodes?.("all") ?? [this.#client];
    // Another node each time: in a Cluster every node receives every message, and the last one may have died.
    const node = nodes[this.#subscribers++ % nodes.length] ?? this.#client;
    const connection = node.duplicate({
      lazyConnect: true,
      retryStrategy: null,
      enableOfflineQueue: true,
      maxRetriesPerRequest: null,
      autoResubscribe: false,
      readOnly: false,
      keyPrefix: "",
    });
    connection.on("error", ignored);
    connection.on("end", onEnd);
    connection.on("message", (channel: string, message: string) => onMessage(channel, message));
    await connectOrEnd(connection, cancelled, () => connection.disconnect());
    return {
      subscribe: async (channel) => void (await connection.subscribe(channel)),
      unsubscribe: async (channel) => void (await connection.unsubscribe(channel)),
      ping: () => connection.ping(),
      close: () => connection.disconnect(),
    };
  }

  async openPipeline(cancelled: AbortSignal): Promise<PipelineConnection> {
    const own = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };
    const connection = this.#client.nodes
      ? this.#client.duplicate([], { lazyConnect: true, redisOptions: own })
      : this.#client.duplicate({ ...own, lazyConnect: true });
    connection.on("error", ignored);
    await connectOrEnd(connection, cancelled, () => connection.disconnect());
    return {
      async pipeline(_key, commands) {
        const answers = await connection.pipeline(commands.map((command) => [...command])).exec();
        return (answers ?? []).map(([error, answer]) => error ?? answer);
      },
      close: () => connection.disconnect(),
    };
  }

  async close(): Promise<void> {
    this.#client.disconnect();
  }
}

/** Every call that suffers from it rejects by itself; without a listener ioredis prints to the terminal. */
function ignored(): void {}
