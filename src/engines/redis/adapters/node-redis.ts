import { UnsupportedError } from "../../../core/errors.js";
import type { Call, Hearing, Lane, NodeRedisClient, RedisLike } from "../client.js";
import { connected } from "./connected.js";

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

export function nodeRedisAdapter(client: NodeRedisClient): RedisLike {
  return new NodeRedis(client as unknown as Connection);
}

class NodeRedis implements RedisLike {
  readonly library = "redis";
  readonly topology: RedisLike["topology"];
  /** Raw commands are sent as they are. */
  readonly keyPrefix = "";
  /** What was sent and not answered is rejected when the connection closes. */
  readonly resends = false;
  readonly #client: Connection;
  #hearings = 0;
  /** Ends what is heard on this very client. */
  readonly #inside = new Set<() => void>();

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

  async hear(
    heard: (channel: string, message: string) => void,
    ended: () => void,
    unwanted: AbortSignal,
  ): Promise<Hearing> {
    const another = await this.#another();
    // A Sentinel client that cannot be duplicated hears on a connection of its own inside.
    const connection = another ?? this.#client;
    const channels = new Set<string>();
    let over = false;
    const end = (): void => {
      if (over) return;
      over = true;
      this.#inside.delete(end);
      connection.off("topology-change", changed);
      if (another !== null) destroy(another);
      else for (const channel of channels) void connection.unsubscribe(channel).catch(ignored);
      ended();
    };
    // A Sentinel client goes on by itself; begin anew, so that what it missed is asked for. (The first primary that it finds
    // is a change too.)
    const changed = (event?: unknown): void => {
      if ((event as { type?: string } | undefined)?.type === "MASTER_CHANGE") end();
    };
    if (another === null) this.#inside.add(end);
    else {
      another.on("error", end);
      another.on("end", end);
      await connected(another, unwanted, end);
    }
    connection.on("topology-change", changed);
    return {
      subscribe: async (channel) => {
        channels.add(channel);
        await connection.subscribe(channel, (message) => heard(channel, message));
      },
      unsubscribe: async (channel) => void (await connection.unsubscribe(channel)),
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
  async #another(): Promise<Connection | null> {
    const { masters = [], replicas = [] } = this.#client;
    if (this.topology === "sentinel") return this.#client.duplicate?.() ?? null;
    const nodes = [...masters, ...replicas];
    const node = nodes[this.#hearings++ % Math.max(1, nodes.length)];
    const client = node === undefined ? this.#client : await this.#client.nodeClient?.(node);
    if (client?.duplicate === undefined) throw new Error("the cluster has no nodes");
    return client.duplicate({ socket: { ...client.options?.socket, reconnectStrategy: false } });
  }

  async lane(unwanted: AbortSignal): Promise<Lane> {
    const lane = this.#client.duplicate?.();
    if (lane === undefined) {
      throw new UnsupportedError("redis", "ack through Sentinel needs node-redis 6 or ioredis", "Install one of them.");
    }
    lane.on("error", ignored);
    await connected(lane, unwanted, () => destroy(lane));
    return {
      pipeline: async (key, commands) => {
        const multi = lane.multi();
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
      close: () => destroy(lane),
    };
  }

  async close(): Promise<void> {
    for (const end of this.#inside) end();
    destroy(this.#client);
  }

  /** The arguments of `sendCommand` and `addCommand`: a cluster is told the key, and who reads only. */
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
