import type { Call, Hearing, IoredisClient, Lane, RedisLike } from "../client.js";
import { connected } from "./connected.js";

/** What is used of ioredis 5 and 6. A `Cluster` has `nodes`, and takes its options for a node one level deeper. */
interface Connection extends IoredisClient {
  readonly status: string;
  readonly options: {
    readonly keyPrefix?: string | undefined;
    readonly sentinels?: readonly unknown[] | null | undefined;
    readonly autoResendUnfulfilledCommands?: boolean | undefined;
    readonly enableOfflineQueue?: boolean | undefined;
  };
  pipeline(commands: unknown[][]): { exec(): Promise<[Error | null, unknown][] | null> };
  duplicate(...args: unknown[]): Connection;
  connect(): Promise<unknown>;
  disconnect(): void;
  ping(): Promise<unknown>;
  subscribe(channel: string): Promise<unknown>;
  unsubscribe(channel: string): Promise<unknown>;
  on(event: string, listener: (...args: string[]) => void): unknown;
  nodes?(role: "master" | "all"): Connection[];
}

export function ioredisAdapter(client: IoredisClient): RedisLike {
  return new Ioredis(client as Connection);
}

class Ioredis implements RedisLike {
  readonly library = "ioredis";
  readonly topology: RedisLike["topology"];
  readonly keyPrefix: string;
  readonly resends: boolean;
  readonly #client: Connection;
  #hearings = 0;

  constructor(client: Connection) {
    const { keyPrefix = "", sentinels, autoResendUnfulfilledCommands = true } = client.options;
    this.#client = client;
    this.topology = typeof client.nodes === "function" ? "cluster" : sentinels ? "sentinel" : "single";
    this.keyPrefix = keyPrefix;
    // A Cluster sends again what a closed connection left unanswered, whatever that option says.
    this.resends = this.topology === "cluster" || autoResendUnfulfilledCommands;
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
    return this.#client.call(...(command as [string, ...string[]]));
  }

  async primaries(): Promise<readonly Call[]> {
    const nodes = this.#client.nodes?.("master") ?? [this.#client];
    return nodes.map(
      (node): Call =>
        ([name = "", ...args]) =>
          node.call(name, ...args),
    );
  }

  async hear(
    heard: (channel: string, message: string) => void,
    ended: () => void,
    unwanted: AbortSignal,
  ): Promise<Hearing> {
    const nodes = this.#client.nodes?.("all") ?? [this.#client];
    // Another node each time: in a Cluster every node hears everything, and the last one may have died.
    const node = nodes[this.#hearings++ % nodes.length] ?? this.#client;
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
    connection.on("end", ended);
    connection.on("message", (channel = "", message = "") => heard(channel, message));
    await connected(connection, unwanted, () => connection.disconnect());
    return {
      subscribe: async (channel) => void (await connection.subscribe(channel)),
      unsubscribe: async (channel) => void (await connection.unsubscribe(channel)),
      ping: () => connection.ping(),
      close: () => connection.disconnect(),
    };
  }

  async lane(unwanted: AbortSignal): Promise<Lane> {
    const own = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 };
    const lane = this.#client.nodes
      ? this.#client.duplicate([], { lazyConnect: true, redisOptions: own })
      : this.#client.duplicate({ ...own, lazyConnect: true });
    lane.on("error", ignored);
    await connected(lane, unwanted, () => lane.disconnect());
    return {
      async pipeline(_key, commands) {
        const answers = await lane.pipeline(commands.map((command) => [...command])).exec();
        return (answers ?? []).map(([error, answer]) => error ?? answer);
      },
      close: () => lane.disconnect(),
    };
  }

  async close(): Promise<void> {
    this.#client.disconnect();
  }
}

/** Every call that suffers from it rejects by itself; without a listener ioredis prints to the terminal. */
function ignored(): void {}
