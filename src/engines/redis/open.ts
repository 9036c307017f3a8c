import type { ConnectionOptions } from "node:tls";
import { shown } from "../../core/checks.js";
import type { Engine } from "../../core/engine.js";
import { InvalidOptionError, UnsupportedError } from "../../core/errors.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { type Load, libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { Silence } from "../../engine-kit/silence.js";
import { AckedGrants, openPipelineInTime, ReplicaAcks } from "./ack.js";
import { RedisCells } from "./cells.js";
import { Claims } from "./claim.js";
import { isIoredis, type RedisClient, type RedisDriver } from "./driver.js";
import type { ConnectLimits } from "./drivers/connect.js";
import { connectIoredis, ioredisDriver } from "./drivers/ioredis.js";
import { connectNodeRedis, nodeRedisDriver } from "./drivers/node-redis.js";
import { ReplaceableDriver } from "./drivers/replaceable.js";
import { RedisEngine } from "./engine.js";
import { translateError } from "./errors.js";
import { parsePush, Subscription } from "./events.js";
import { ServerFacts } from "./guarantees.js";
import { Inspection } from "./inspect.js";
import { LockKeys } from "./keys.js";
import { checkOptions, type RedisOptions, type Settings } from "./options.js";
import { PlainEngine } from "./plain.js";
import { Releases } from "./release.js";
import { Renewals } from "./renew.js";
import { Scripts } from "./scripts.js";
import { parseRedisUrl, type RedisUrl } from "./url.js";

/** How an engine is opened by URL. */
export interface RedisUrlOptions extends RedisOptions {
  /** For `rediss:`, and to turn TLS on for Sentinel and Cluster: certificates, host name, as `node:tls` takes them. */
  readonly tls?: ConnectionOptions;
}

/**
 * An engine on a Redis client of yours: ioredis 5 or 6 (`Redis`, with Sentinel too, or `Cluster`) or node-redis 5 or 6
 * (connected; single, Sentinel or cluster). The client stays yours to close; the engine opens one connection more for its
 * pushes, and closes it when it is disposed.
 *
 * ```ts
 * const engine = await redisEngine(new Redis(), { ack: "majority" });
 * const locks = await connect(engine);
 * ```
 */
export async function redisEngine(client: RedisClient, options: RedisOptions = {}): Promise<Engine> {
  return openEngine(driverOf(client), checkOptions(options), false);
}

function driverOf(client: RedisClient): RedisDriver {
  if (typeof client === "object" && client !== null) {
    if (isIoredis(client)) return ioredisDriver(client);
    if (typeof client.sendCommand === "function") return nodeRedisDriver(client);
  }
  throw new InvalidOptionError("client", shown(client), "a client of ioredis 5 or 6, or of redis (node-redis) 5 or 6");
}

type Connect = (module: unknown, url: RedisUrl, limits: ConnectLimits) => Promise<RedisDriver>;

/** By the name of the library, in the order in which they are looked for. */
const LIBRARIES: Readonly<Record<string, Connect>> = { ioredis: connectIoredis, redis: connectNodeRedis };

/** `redis:`, `rediss:`, `redis+sentinel:` and `redis+cluster:`, with ioredis or, where only that is installed, node-redis. */
export async function openRedis(
  url: string,
  options: RedisUrlOptions = {},
  load: Load = loadInstalled,
): Promise<Engine> {
  const { tls, ...rest } = options;
  const settings = checkOptions(rest);
  const parsed = parseRedisUrl(url, tls);
  for (const [library, connect] of Object.entries(LIBRARIES)) {
    const module = await loadIfInstalled(library, load);
    if (module === null) continue;
    const connectOne = (closed?: AbortSignal): Promise<RedisDriver> =>
      connect(module, parsed, { clock: settings.clock, closed });
    return openEngine(new ReplaceableDriver(await connectOne(), connectOne), settings, true);
  }
  throw libraryMissing("redis", "ioredis");
}

/** `ours`: the client was made here, and is closed with the engine. One that was handed in never is. */
async function openEngine(driver: RedisDriver, settings: Settings, ours: boolean): Promise<Engine> {
  const opening = new Opening(driver, settings, ours);
  try {
    return await (settings.layout === "plain" ? opening.plain() : opening.fair());
  } catch (error) {
    await opening.close();
    throw error;
  }
}

/** Opens an engine, and closes all of it again, also when opening fails half way. */
class Opening {
  readonly #driver: RedisDriver;
  readonly #settings: Settings;
  readonly #ours: boolean;
  readonly #timeouts: CallTimeouts;
  readonly #scripts: Scripts;
  readonly #server: ServerFacts;
  /** Made before the engine: what is found while it is opened is kept for the first listener. */
  readonly #listeners = new Listeners();
  readonly #warn = (message: string): void => this.#listeners.tell({ kind: "warning", message });
  /** In the order in which they are called. */
  readonly #closers: (() => void)[] = [];

  constructor(driver: RedisDriver, settings: Settings, ours: boolean) {
    this.#driver = driver;
    this.#settings = settings;
    this.#ours = ours;
    const { clock, callTimeoutMs: limitMs } = settings;
    const what = ours ? "The connection to Redis" : "The connection of the Redis client that was handed in";
    const silence = new Silence({ clock, limitMs, what, replace: driver.replace ?? null, warn: this.#warn });
    // A client of ours is replaced also when it hangs while it connects; any other finds a connection by itself.
    const unanswered = (): void => void ((ours || driver.connected) && silence.unanswered());
    this.#timeouts = new CallTimeouts(clock, limitMs, unanswered);
    this.#scripts = new Scripts(driver, this.#timeouts, ours ? silence.offline : undefined);
    this.#server = new ServerFacts(driver, this.#timeouts);
    this.#closers.push(() => this.#timeouts.close());
  }

  readonly close = async (): Promise<void> => {
    for (const close of this.#closers) close();
    if (this.#ours) await this.#driver.close();
  };

  async fair(): Promise<Engine> {
    await this.#server.read();
    const { prefix, idleMs, clock, chance } = this.#settings;
    const [driver, scripts, timeouts, listeners] = [this.#driver, this.#scripts, this.#timeouts, this.#listeners];
    const { resends } = driver;
    const cluster = driver.topology === "cluster";
    const acks = await this.#openAcks();
    const keys = new LockKeys(prefix, idleMs);
    const ownChannel = `${prefix}client:${chance.id()}`;
    const subscription = await this.#subscribe(ownChannel, (message) => {
      const event = parsePush(message, (key) => keys.nameOf(key.slice(driver.keyPrefix.length)));
      if (event === undefined) return;
      // With `ack` a pushed grant counts only when the replicas have it too: whoever waits has to ask.
      const wakes = event.kind === "granted" && acks !== null;
      listeners.tell(wakes ? { kind: "wake", name: event.name, id: event.id } : event);
    });
    const channel = subscription === null ? "" : ownChannel;
    const expectPush = (): void => subscription?.expectPush();
    const call = acks === null ? scripts.answers : acks.answers;
    const cells = new RedisCells({ driver, scripts, timeouts, clock, prefix, idleMs, subscription });
    this.#closers.unshift(() => cells.close());
    const releases = new Releases({ call: scripts.answers, keys, channel, cluster, resends });
    const grants = acks === null ? null : new AckedGrants((ref) => releases.release(ref));
    return new RedisEngine({
      resends,
      claims: new Claims({ call, keys, idleMs, channel, cluster, expectPush, grants }),
      releases,
      renewals: new Renewals({ call, keys, cluster, expectPush, grants }),
      inspection: new Inspection(driver, scripts, timeouts, keys),
      cells,
      scripts,
      keys,
      listeners,
      server: this.#server,
      subscription,
      grants,
      close: this.close,
    });
  }

  async plain(): Promise<Engine> {
    await this.#server.read();
    const { ack, prefix } = this.#settings;
    if (ack !== 0)
      throw new UnsupportedError("redis", "the plain layout has no ack", 'Use the "fair" layout, or leave ack out.');
    const channel = `${prefix}plain`;
    const subscription = await this.#subscribe(channel, (name) => this.#listeners.tell({ kind: "wake", name }));
    return new PlainEngine({
      driver: this.#driver,
      scripts: this.#scripts,
      timeouts: this.#timeouts,
      listeners: this.#listeners,
      server: this.#server,
      subscription,
      channel,
      prefix,
      close: this.close,
    });
  }

  /** Null when nothing can be pushed here: then whoever waits polls, and the guarantees say so. */
  async #subscribe(channel: string, onMessage: (message: string) => void): Promise<Subscription | null> {
    const { clock, chance, wake, callTimeoutMs } = this.#settings;
    if (wake === "poll") return null;
    const subscription = new Subscription({ driver: this.#driver, clock, chance, callTimeoutMs, warn: this.#warn });
    subscription.onChange((live) => {
      this.#listeners.tell({ kind: "wake" });
      // After a fail-over another server may answer. As long as it cannot be read nothing is guaranteed that depends on it.
      if (live) this.#server.read().catch(() => {});
    });
    try {
      await subscription.open(channel, onMessage);
    } catch (cause) {
      // A proxy without pub/sub, or an ACL without this channel.
      subscription.close();
      this.#warn(`Redis does not push here (${translateError(cause).message}): who waits asks again and again.`);
      return null;
    }
    this.#closers.unshift(() => subscription.close());
    return subscription;
  }

  /** Null where a grant counts when the primary has it. */
  async #openAcks(): Promise<ReplicaAcks | null> {
    const { ack, ackTimeoutMs, clock, callTimeoutMs: limitMs } = this.#settings;
    if (ack === 0) return null;
    if (ack === "majority" && this.#server.replicasMax === 0) {
      const missing = "a majority of one server is that server alone, and it shows no replica";
      throw new UnsupportedError(
        "redis",
        missing,
        "Say how many replicas must acknowledge (ack: 1), or start them first.",
      );
    }
    const connection = await openPipelineInTime(this.#timeouts, this.#driver);
    const silence = new Silence({
      clock,
      limitMs,
      what: "The connection on which replicas acknowledge",
      replace: () => acks.replace(),
      warn: this.#warn,
    });
    const timeouts = new CallTimeouts(clock, limitMs, silence.unanswered);
    // Of the primary and its replicas: more than half, one of which is the primary.
    const needed = (): number => (ack === "majority" ? Math.floor((this.#server.replicasMax + 1) / 2) : ack);
    const acks: ReplicaAcks = new ReplicaAcks(
      this.#driver,
      connection,
      timeouts,
      needed,
      Math.min(ackTimeoutMs, limitMs / 2),
    );
    this.#closers.unshift(() => acks.close());
    return acks;
  }
}
