import { shown } from "../../core/checks.js";
import type { Engine } from "../../core/engine.js";
import { InvalidOptionError, UnsupportedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { ServerInfo } from "../../core/server-info.js";
import { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { Silence } from "../../engine-kit/silence.js";
import { AckLane, laneWithin } from "./ack.js";
import { ioredisAdapter } from "./adapters/ioredis.js";
import { nodeRedisAdapter } from "./adapters/node-redis.js";
import { RedisCells } from "./cells.js";
import { isIoredis, type RedisClient, type RedisLike } from "./client.js";
import { RedisEngine } from "./engine.js";
import { checkOptions, type RedisOptions, type Settings } from "./options.js";
import { PlainEngine } from "./plain.js";
import { about, type Facts, guaranteesOf, probe, UNKNOWN } from "./probe.js";
import { translated } from "./refusals.js";
import { Scripts } from "./scripts.js";
import { Subscription } from "./subscription.js";

export type { IoredisClient, NodeRedisClient, RedisClient } from "./client.js";
export { openRedis, type RedisUrlOptions } from "./open.js";
export type { RedisOptions } from "./options.js";

/**
 * An engine on a Redis client of yours: ioredis 5 or 6 (`Redis`, with Sentinel too, or `Cluster`) or node-redis 5 or 6
 * (connected; single, Sentinel or cluster). The client stays yours to close; the engine opens one connection more to
 * hear its pushes, and closes it when it is disposed.
 *
 * ```ts
 * const engine = await redisEngine(new Redis(), { ack: "majority" });
 * const locks = await connect(engine);
 * ```
 */
export async function redisEngine(client: RedisClient, options: RedisOptions = {}): Promise<Engine> {
  return openEngine(adapterOf(client), checkOptions(options), false);
}

/** What fits a library's client. */
export function adapterOf(client: RedisClient): RedisLike {
  if (typeof client === "object" && client !== null) {
    if (isIoredis(client)) return ioredisAdapter(client);
    if (typeof client.sendCommand === "function") return nodeRedisAdapter(client);
  }
  throw new InvalidOptionError("client", shown(client), "a client of ioredis 5 or 6, or of redis (node-redis) 5 or 6");
}

/** `own`: the client was made for this engine and ends with it. */
export async function openEngine(client: RedisLike, settings: Settings, own: boolean): Promise<Engine> {
  const opened = new Opened(client, settings, own);
  try {
    return await opened.engine();
  } catch (error) {
    await opened.dispose();
    throw error;
  }
}

/** Everything an engine is made of, so that all of it is closed again, also when opening fails half way. */
class Opened {
  readonly #client: RedisLike;
  readonly #settings: Settings;
  readonly #own: boolean;
  readonly #deadlines: CallTimeouts;
  readonly #scripts: Scripts;
  /** Made before the engine: what is found while it is opened is kept for the first who listens. */
  readonly #listeners = new Listeners();
  readonly #warn = (message: string): void => this.#listeners.tell({ kind: "warning", message });
  #facts: Facts = UNKNOWN;
  /** The most replicas that were ever seen: one that is away still counts for a majority. */
  #replicasMax = 0;
  #subscription: Subscription | null = null;
  #ack: AckLane | null = null;
  #cells: RedisCells | null = null;

  constructor(client: RedisLike, settings: Settings, own: boolean) {
    this.#client = client;
    this.#settings = settings;
    this.#own = own;
    const { clock, callTimeoutMs: limitMs } = settings;
    const what = own ? "The connection to Redis" : "The connection of the Redis client that was handed in";
    const silence = new Silence({ clock, limitMs, what, replace: client.replace ?? null, warn: this.#warn });
    // A client of ours is replaced also when it hangs on its way to a connection; any other finds one by itself.
    const unanswered = (): void => void ((own || client.connected) && silence.unanswered());
    this.#deadlines = new CallTimeouts(clock, limitMs, unanswered);
    this.#scripts = new Scripts(client, this.#deadlines);
  }

  async engine(): Promise<Engine> {
    await this.#probe();
    return this.#settings.layout === "plain" ? this.#plain() : this.#fair();
  }

  readonly dispose = async (): Promise<void> => {
    this.#subscription?.close();
    this.#cells?.close();
    this.#ack?.close();
    this.#deadlines.close();
    if (this.#own) await this.#client.close();
  };

  readonly #about = async (): Promise<ServerInfo> => {
    try {
      return await about(this.#client, this.#deadlines);
    } catch (cause) {
      throw translated(cause);
    }
  };

  async #fair(): Promise<Engine> {
    const { prefix, idleMs, clock, chance } = this.#settings;
    this.#ack = await this.#ackLane();
    const channel = `${prefix}client:${chance.id()}`;
    // It is listened to before the engine exists that will hear: what is said that early is nobody's.
    let engine: RedisEngine | undefined;
    const hearing = await this.#subscribe(channel, (message) => engine?.heard(message));
    const cells = new RedisCells({
      client: this.#client,
      scripts: this.#scripts,
      deadlines: this.#deadlines,
      clock,
      prefix,
      idleMs,
      subscription: this.#subscription,
    });
    this.#cells = cells;
    engine = new RedisEngine({
      client: this.#client,
      scripts: this.#scripts,
      deadlines: this.#deadlines,
      listeners: this.#listeners,
      expect: this.#expect,
      ack: this.#ack,
      channel: hearing ? channel : "",
      prefix,
      idleMs,
      cells,
      guarantees: () => this.#guarantees(),
      about: this.#about,
      dispose: this.dispose,
    });
    return engine;
  }

  async #plain(): Promise<Engine> {
    const { ack, prefix } = this.#settings;
    if (ack !== 0)
      throw new UnsupportedError("redis", "the plain layout has no ack", 'Use the "fair" layout, or leave ack out.');
    const channel = `${prefix}plain`;
    await this.#subscribe(channel, (name) => this.#listeners.tell({ kind: "wake", name }));
    return new PlainEngine({
      client: this.#client,
      scripts: this.#scripts,
      deadlines: this.#deadlines,
      listeners: this.#listeners,
      expect: this.#expect,
      channel,
      prefix,
      guarantees: () => ({ ...this.#guarantees(), order: "none" }),
      about: this.#about,
      dispose: this.dispose,
    });
  }

  readonly #expect = (): void => this.#subscription?.expect();

  #guarantees(): Guarantees {
    return guaranteesOf(this.#client, this.#facts, this.#subscription?.live ? "push" : "poll");
  }

  /** False when nothing can be heard here: then whoever waits polls, and the guarantees say so. */
  async #subscribe(channel: string, heard: (message: string) => void): Promise<boolean> {
    const { clock, chance, wake, callTimeoutMs: limitMs } = this.#settings;
    if (wake === "poll") return false;
    const hears = (live: boolean): void => {
      this.#listeners.tell({ kind: "wake" });
      this.#cells?.hears(live);
    };
    const subscription = new Subscription({
      client: this.#client,
      clock,
      chance,
      limitMs,
      warn: this.#warn,
      down: () => hears(false),
      back: () => {
        hears(true);
        // After a fail-over the facts may be others: until they are read again nothing of them is promised.
        this.#facts = UNKNOWN;
        this.#probe().catch(() => {});
      },
    });
    try {
      await subscription.open(channel, heard);
    } catch (cause) {
      // A proxy without pub/sub, or an ACL without this channel.
      subscription.close();
      this.#warn(`Redis does not push here (${translated(cause).message}): who waits asks again and again.`);
      return false;
    }
    this.#subscription = subscription;
    return true;
  }

  async #probe(): Promise<void> {
    try {
      this.#facts = await probe(this.#client, this.#deadlines);
    } catch (cause) {
      throw translated(cause);
    }
    this.#replicasMax = Math.max(this.#replicasMax, this.#facts.replicas ?? 0);
  }

  async #ackLane(): Promise<AckLane | null> {
    const { ack, ackTimeoutMs, clock, callTimeoutMs: limitMs } = this.#settings;
    if (ack === 0) return null;
    if (ack === "majority" && this.#replicasMax === 0) {
      const missing = "a majority of one server is that server alone, and it shows no replica";
      throw new UnsupportedError(
        "redis",
        missing,
        "Say how many replicas must acknowledge (ack: 1), or start them first.",
      );
    }
    const lane = await laneWithin(this.#deadlines, this.#client);
    const silence = new Silence({
      clock,
      limitMs,
      what: "The connection on which replicas acknowledge",
      replace: () => made.replace(),
      warn: this.#warn,
    });
    const deadlines = new CallTimeouts(clock, limitMs, silence.unanswered);
    // Of the primary and its replicas: more than half, one of which is the primary.
    const needed = (): number => (ack === "majority" ? Math.floor((this.#replicasMax + 1) / 2) : ack);
    const made: AckLane = new AckLane(this.#client, lane, deadlines, needed, Math.min(ackTimeoutMs, limitMs / 2));
    return made;
  }
}
