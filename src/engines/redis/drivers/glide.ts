import { InvalidOptionError, UnsupportedError } from "../../../core/errors.js";
import type { Call, GlideClient, PipelineConnection, RedisDriver, SubscriberConnection } from "../driver.js";

/** What is used of Valkey GLIDE 2. */
interface Connection extends GlideClient {
  readonly config?: { readonly readFrom?: string };
  subscribe?(channels: ReadonlySet<string>, timeoutMs: number): Promise<unknown>;
  unsubscribe(channels: ReadonlySet<string>, timeoutMs: number): Promise<unknown>;
  readonly constructor: { createClient(options: object): Promise<Connection> };
}

type Message = { readonly channel: unknown; readonly message: unknown };

/** By their numbers, because the library is not imported: its enumerations `Decoder` and `ProtocolVersion`. */
const AS_TEXT = { decoder: 1 };
const RESP3 = 0;

/** 0: until the server has answered. The engine has a time limit of its own. */
const UNTIL_ANSWERED = 0;

export function glideDriver(client: GlideClient): RedisDriver {
  const connection = client as unknown as Connection;
  if ("ssubscribe" in connection) {
    const missing = "a GlideClusterClient has no way to ask one node after the other what it holds";
    throw new UnsupportedError("redis", missing, "Use a Cluster of ioredis, or createCluster of redis (node-redis).");
  }
  const { readFrom = "primary" } = connection.config ?? {};
  if (readFrom !== "primary") throw new InvalidOptionError("readFrom", `"${readFrom}"`, '"primary"');
  return new GlideDriver(connection);
}

class GlideDriver implements RedisDriver {
  readonly library = "@valkey/valkey-glide";
  readonly topology = "single";
  readonly keyPrefix = "";
  /** Nothing was seen to be sent twice, but the library does not promise it. */
  readonly resends = true;
  /** It does not say, and connects again by itself. */
  readonly offline = false;
  readonly connected = true;
  readonly #client: Connection;

  constructor(client: Connection) {
    this.#client = client;
  }

  call(_key: string | null, command: readonly string[]): Promise<unknown> {
    return send(this.#client, command);
  }

  async primaries(): Promise<readonly Call[]> {
    return [(command) => send(this.#client, command)];
  }

  async openSubscriber(
    onMessage: (channel: string, message: string) => void,
    onEnd: () => void,
    cancelled: AbortSignal,
  ): Promise<SubscriberConnection> {
    const { config, constructor } = this.#client;
    const connection = await constructor.createClient({
      ...config,
      lazyConnect: false,
      protocol: RESP3,
      defaultDecoder: AS_TEXT.decoder,
      pubsubSubscriptions: {
        channelsAndPatterns: {},
        callback: ({ channel, message }: Message) => over || onMessage(String(channel), String(message)),
      },
    });
    let over = false;
    const close = (): void => {
      if (over) return;
      over = true;
      connection.close();
    };
    const end = (): void => {
      if (over) return;
      close();
      onEnd();
    };
    try {
      if (cancelled.aborted) throw new Error("closed");
      if (connection.subscribe === undefined) throw new Error("this version of GLIDE cannot subscribe later: use 2.3");
      const first = await idOf(connection);
      return {
        subscribe: async (channel) => void (await connection.subscribe?.(new Set([channel]), UNTIL_ANSWERED)),
        unsubscribe: async (channel) => void (await connection.unsubscribe(new Set([channel]), UNTIL_ANSWERED)),
        // The library connects again and tells nobody. What was pushed in between is missed, and another number shows it.
        ping: async () => {
          if ((await idOf(connection)) !== first) end();
        },
        close,
      };
    } catch (cause) {
      close();
      throw cause;
    }
  }

  async openPipeline(): Promise<PipelineConnection> {
    const missing =
      "GLIDE may connect again between a script and its WAIT, which then counts replicas that do not have it";
    throw new UnsupportedError("redis", missing, "For ack, use a client of ioredis or of redis (node-redis).");
  }

  async close(): Promise<void> {
    this.#client.close();
  }
}

async function idOf(connection: Connection): Promise<string> {
  return String(await send(connection, ["client", "id"]));
}

function send(client: Connection, command: readonly string[]): Promise<unknown> {
  return client.customCommand([...command], AS_TEXT).catch((cause: unknown) => {
    throw asServerSaid(cause);
  });
}

/** The kinds for which the library replaces the word that the server's error began with. */
const WORDS: Readonly<Record<string, string>> = {
  ResponseError: "ERR",
  NoScriptError: "NOSCRIPT",
  BusyLoadingError: "LOADING",
  MasterDown: "MASTERDOWN",
  ReadOnly: "READONLY",
  Moved: "MOVED",
  ClusterDown: "CLUSTERDOWN",
  TryAgain: "TRYAGAIN",
  CrossSlot: "CROSSSLOT",
  PermissionDenied: "NOPERM",
  AuthenticationFailed: "WRONGPASS",
};

/** `WORD: text`, or `… server: - Kind: text`, back to `WORD text`. */
function asServerSaid(cause: unknown): unknown {
  if (!(cause instanceof Error)) return cause;
  const [, kind = "", text = ""] =
    /^(?:An error was signalled by the server:? ?- )?([A-Za-z]+): (.*)$/s.exec(cause.message) ?? [];
  const word = WORDS[kind] ?? (/^[A-Z]+$/.test(kind) ? kind : undefined);
  return word === undefined ? cause : new Error(`${word} ${text}`);
}
