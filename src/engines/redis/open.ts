import type { ConnectionOptions } from "node:tls";
import { shown } from "../../core/checks.js";
import type { Engine } from "../../core/engine.js";
import {
  type EngineRefusedError,
  EngineUnavailableError,
  HoldfastError,
  InvalidOptionError,
  UnsupportedError,
} from "../../core/errors.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { askCredentials, type CredentialsFunction } from "../../engine-kit/credentials.js";
import { agreeOnVersion } from "../../engine-kit/layout-version.js";
import { type Load, libraryMissing, loadIfInstalled, loadInstalled } from "../../engine-kit/library.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { Silence } from "../../engine-kit/silence.js";
import { AckedGrants, openPipelineInTime, ReplicaAcks } from "./ack.js";
import { RedisCells } from "./cells.js";
import { Claims } from "./claim.js";
import { isGlide, isIoredis, type RedisClient, type RedisDriver } from "./driver.js";
import type { ConnectLimits } from "./drivers/connect.js";
import { glideDriver } from "./drivers/glide.js";
import { connectIoredis, ioredisDriver } from "./drivers/ioredis.js";
import { connectNodeRedis, nodeRedisDriver } from "./drivers/node-redis.js";
import { ReplaceableDriver } from "./drivers/replaceable.js";
import { RedisEngine } from "./engine.js";
import { translateError } from "./errors.js";
import { parsePush, Subscription } from "./events.js";
import { ServerFacts } from "./guarantees.js";
import { Inspection } from "./inspect.js";
import { LockKeys } from "./keys.js";
import { LAYOUTS, type Layout } from "./layouts.js";
import { checkOptions, type RedisOptions, type Settings } from "./options.js";
import { RedissonLatches } from "./redisson-latches.js";
import { Releases } from "./release.js";
import { Renewals } from "./renew.js";
import { Scripts } from "./scripts.js";
import { SharedMutexEngine } from "./shared-mutex.js";
import { parseRedisUrl, type RedisUrl } from "./url.js";
import { Wakes } from "./wakes.js";

/** How an engine is opened by URL. */
export interface RedisUrlOptions extends RedisOptions {
  /** For `rediss:` and its like: certificates, host name, as `node:tls` takes them. */
  readonly tls?: ConnectionOptions;
  /** Who to connect as, asked at each new connection. Needs node-redis: ioredis takes a password once and for all. */
  readonly credentials?: CredentialsFunction;
}

/**
 * An engine on a Redis client of yours: ioredis 5 or 6 (`Redis`, with Sentinel too, or `Cluster`), node-redis 5 or 6
 * (connected; single, Sentinel or cluster) or Valkey GLIDE 2 (a `GlideClient`). The client stays yours to close; the engine opens one connection more for its
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

const CLIENTS = "a client of ioredis 5 or 6, of redis (node-redis) 5 or 6, or a GlideClient of @valkey/valkey-glide 2";

function driverOf(client: RedisClient): RedisDriver {
  if (typeof client === "object" && client !== null) {
    if (isIoredis(client)) return ioredisDriver(client);
    if (isGlide(client)) return glideDriver(client);
    if (typeof client.sendCommand === "function") return nodeRedisDriver(client);
  }
  throw new InvalidOptionError("client", shown(client), CLIENTS);
}

type Connect = (module: unknown, url: RedisUrl, limits: ConnectLimits) => Promise<RedisDriver>;

/** By the name of the library, in the order in which they are looked for. */
const LIBRARIES: Readonly<Record<string, Connect>> = { ioredis: connectIoredis, redis: connectNodeRedis };

/** Those that ask for a password at each connection. */
const ASKING_LIBRARIES: Readonly<Record<string, Connect>> = { redis: connectNodeRedis };

/** `redis:`, `redis+sentinel:` and `redis+cluster:`, by TLS `rediss:` and so on, with ioredis or, where only that is installed, node-redis. */
export async function openRedis(
  url: string,
  options: RedisUrlOptions = {},
  load: Load = loadInstalled,
): Promise<Engine> {
  const { tls, credentials, ...rest } = options;
  const settings = checkOptions(rest);
  const account = parseRedisUrl(url, tls);
  const ask = askCredentials("redis", credentials, account, settings);
  const parsed = { ...account, credentials: ask };
  for (const [library, connect] of Object.entries(ask === undefined ? LIBRARIES : ASKING_LIBRARIES)) {
    const module = await loadIfInstalled(library, load);
    if (module === null) continue;
    const connectOne = (closed?: AbortSignal): Promise<RedisDriver> =>
      connect(module, parsed, { clock: settings.clock, closed });
    return openEngine(new ReplaceableDriver(await connectOne(), connectOne), settings, true);
  }
  throw libraryMissing("redis", ask === undefined ? "ioredis" : "redis");
}

/** `ours`: the client was made here, and is closed with the engine. One that was handed in never is. */
async function openEngine(driver: RedisDriver, settings: Settings, ours: boolean): Promise<Engine> {
  const opening = new Opening(driver, settings, ours);
  try {
    return await (settings.layout === "fair" ? opening.fair() : opening.shared(LAYOUTS[settings.layout]));
  } catch (error) {
    await opening.close();
    // A server that is full, or loads its data, says so: that passes.
    throw error instanceof HoldfastError ? error : new EngineUnavailableError("redis", "connecting", error);
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
    const agreeing = this.#agreeOnVersion();
    // Told below: what the server says about itself explains more.
    agreeing.catch(() => {});
    await this.#server.read();
    const refusal = await agreeing;
    if (refusal !== null) throw refusal;
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
    // What fails is asked again after the next reconnect.
    subscription?.onChange((live) => {
      if (live) void this.#agreeAgain().catch(() => {});
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

  async shared(layout: Layout): Promise<Engine> {
    await this.#server.read();
    const { ack, prefix, clock, idleMs } = this.#settings;
    const [driver, scripts, timeouts, listeners] = [this.#driver, this.#scripts, this.#timeouts, this.#listeners];
    if (ack !== 0) {
      const missing = `the ${layout.name} layout has no ack`;
      throw new UnsupportedError("redis", missing, 'Use the "fair" layout, or leave ack out.');
    }
    const redisson = layout.name !== "plain";
    if (redisson && driver.keyPrefix !== "") {
      const missing = `the client puts "${driver.keyPrefix}" before every key, and Redisson's other keys would not be found`;
      throw new UnsupportedError("redis", missing, "Hand in a client without a keyPrefix, and name the locks in full.");
    }
    const channel = `${prefix}${layout.name}`;
    const woken = (name: string): void => listeners.tell({ kind: "wake", name });
    const subscription = await this.#subscribe(channel, woken);
    const wakes = new Wakes({ layout, shared: channel, subscription, clock, woken });
    const latches = redisson
      ? new RedissonLatches({ driver, scripts, timeouts, clock, prefix, idleMs, subscription })
      : null;
    this.#closers.unshift(() => {
      wakes.close();
      latches?.close();
    });
    return new SharedMutexEngine({
      driver,
      scripts,
      timeouts,
      listeners,
      server: this.#server,
      layout,
      wakes,
      latches,
      prefix,
      close: this.close,
    });
  }

  /** One key for everything under the prefix. The layouts that we share with other programs are theirs, and have no version. */
  #agreeOnVersion(): Promise<EngineRefusedError | null> {
    const { prefix } = this.#settings;
    const place = { kind: "redis", what: `the data under the prefix "${prefix}"`, another: "a prefix" } as const;
    const key = `${prefix}layout-version`;
    return agreeOnVersion(place, (seen, ours) => this.#scripts.text("layoutVersion", [key], [ours, seen ?? ""]));
  }

  /**
   * After a reconnect: a server that came up empty has no version, and who was away for long may be too old by now. Asked twice before
   * anything is refused: an answer that was spoiled on the way is not the same again.
   */
  async #agreeAgain(): Promise<void> {
    const [first, second] = [await this.#agreeOnVersion(), await this.#agreeOnVersion()];
    const refusal = first?.message === second?.message ? second : null;
    this.#scripts.refuse(refusal);
    if (refusal !== null) this.#warn(refusal.message);
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
