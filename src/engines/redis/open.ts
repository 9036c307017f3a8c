import type { ConnectionOptions } from "node:tls";
import { onAbort } from "../../core/abort.js";
import type { Clock, Timer } from "../../core/clock.js";
import type { Engine } from "../../core/engine.js";
import { EngineRefusedError, EngineUnavailableError } from "../../core/errors.js";
import { libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { ioredisAdapter } from "./adapters/ioredis.js";
import { nodeRedisAdapter } from "./adapters/node-redis.js";
import type { IoredisClient, NodeRedisClient, RedisLike } from "./client.js";
import { openEngine } from "./index.js";
import { checkOptions, type RedisOptions } from "./options.js";
import { OwnClient } from "./own.js";
import { translated } from "./refusals.js";
import { parseRedisUrl, type RedisUrl } from "./url.js";

/** How an engine is opened by URL. */
export interface RedisUrlOptions extends RedisOptions {
  /** For `rediss:`, and to turn TLS on for Sentinel and Cluster: certificates, host name, as `node:tls` takes them. */
  readonly tls?: ConnectionOptions;
}

const CONNECT_TIMEOUT_MS = 5_000;
const RECONNECT_MAX_MS = 1_000;
const reconnectDelayMs = (attempt: number): number => Math.min(RECONNECT_MAX_MS, 25 * 2 ** Math.min(attempt, 10));

/** `redis:`, `rediss:`, `redis+sentinel:` and `redis+cluster:`, with ioredis or, where only that is installed, node-redis. */
export async function openRedis(url: string, options: RedisUrlOptions = {}, load = loadInstalled): Promise<Engine> {
  const { tls, ...rest } = options;
  const settings = checkOptions(rest);
  const place = parseRedisUrl(url, tls);
  let client: RedisLike | null = null;
  for (const [library, make] of Object.entries(MAKERS)) {
    const module = await loadIfInstalled(library, load);
    if (module === null) continue;
    const another = (closed?: AbortSignal): Promise<RedisLike> =>
      make(module, place, { clock: settings.clock, closed });
    client = new OwnClient(await another(), another);
    break;
  }
  if (client === null) throw libraryMissing("redis", "ioredis");
  return openEngine(client, settings, true);
}

/** When it has taken too long, or nobody wants it any more. */
type Limits = { readonly clock: Clock; readonly closed: AbortSignal | undefined };

const MAKERS: Record<string, (module: unknown, place: RedisUrl, limits: Limits) => Promise<RedisLike>> = {
  ioredis: makeIoredis,
  redis: makeNodeRedis,
};

type IoredisModule = {
  readonly Redis: new (options: object) => IoredisClient & Opening;
  readonly Cluster: new (nodes: readonly object[], options: object) => IoredisClient & Opening;
};
type Opening = {
  connect(): Promise<unknown>;
  on(event: string, run: (event?: unknown) => void): unknown;
  disconnect(): void;
};

async function makeIoredis(module: unknown, place: RedisUrl, limits: Limits): Promise<RedisLike> {
  const { Redis, Cluster } = module as IoredisModule;
  const { hosts, username, password, db, tls, master } = place;
  const shared = {
    username,
    password,
    tls,
    connectTimeout: CONNECT_TIMEOUT_MS,
    // Nothing is sent twice behind our back, and what is unanswered when a connection ends fails at once: the loops of
    // the core ask again under the same id (`pitfalls.md` 63).
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // A primary that became a replica: look for the new one.
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  };
  const node = { ...shared, lazyConnect: true, enableOfflineQueue: false, retryStrategy: reconnectDelayMs };
  let client: IoredisClient & Opening;
  if (place.topology === "cluster") {
    client = new Cluster(hosts, {
      lazyConnect: true,
      redisOptions: shared,
      clusterRetryStrategy: reconnectDelayMs,
      slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
    });
  } else if (place.topology === "sentinel") {
    const { sentinelUsername, sentinelPassword } = place;
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
  return connected(ioredisAdapter(client), client, () => client.connect(), limits);
}

type Create = (options: object) => NodeRedisClient & Pick<Opening, "on">;
type NodeRedisModule = {
  readonly createClient: Create;
  readonly createCluster: Create;
  readonly createSentinel: Create;
};

async function makeNodeRedis(module: unknown, place: RedisUrl, limits: Limits): Promise<RedisLike> {
  const { createClient, createCluster, createSentinel } = module as NodeRedisModule;
  const { hosts, username, password, db, tls, master } = place;
  const socket = {
    connectTimeout: CONNECT_TIMEOUT_MS,
    reconnectStrategy: reconnectDelayMs,
    ...(tls === undefined ? {} : { ...tls, tls: true }),
  };
  const account = { ...(username ? { username } : {}), ...(password ? { password } : {}) };
  let client: NodeRedisClient & Pick<Opening, "on">;
  if (place.topology === "cluster") {
    const rootNodes = hosts.map((host) => ({ socket: { ...socket, ...host } }));
    client = createCluster({ rootNodes, defaults: { ...account, socket } });
  } else if (place.topology === "sentinel") {
    const { sentinelUsername, sentinelPassword } = place;
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
  return connected(nodeRedisAdapter(client), client, () => client.connect(), limits);
}

/** The first connection must succeed: a wrong address is told at once, not after a wait without end. */
async function connected(
  adapter: RedisLike,
  client: Pick<Opening, "on">,
  connect: () => Promise<unknown>,
  { clock, closed }: Limits,
): Promise<RedisLike> {
  let failure: unknown;
  let timer: Timer | undefined;
  let unlisten = (): void => {};
  try {
    await new Promise<unknown>((resolve, reject) => {
      // Without a listener the libraries print, or throw.
      const failed = (cause?: unknown): void => {
        failure ??= cause;
        // Of several hosts the others may answer; of one, the library would go on trying for ever.
        if (adapter.topology === "single") reject(cause);
      };
      client.on("error", failed);
      timer = clock.after(2 * CONNECT_TIMEOUT_MS, () => reject(new Error("no connection in time")));
      if (closed !== undefined) unlisten = onAbort(closed, () => reject(new Error("closed")));
      connect().then(resolve, reject);
    });
    return adapter;
  } catch (cause) {
    await adapter.close();
    const error = translated(failure ?? cause);
    throw error instanceof EngineRefusedError ? error : new EngineUnavailableError("redis", "connecting", error);
  } finally {
    unlisten();
    if (timer !== undefined) clock.cancel(timer);
  }
}
