import { EngineRefusedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { CallTimeouts } from "../../engine-kit/call-timeouts.js";
import type { Call, RedisDriver } from "./driver.js";
import { translateError } from "./errors.js";
import { isText } from "./scripts.js";

/** What a server says about itself. */
type Facts = {
  /** Of the primary that has most; null where it will not say. */
  readonly replicas: number | null;
  /** Every write is on disk before it is answered, and it says so. */
  readonly durable: boolean;
};

/** Before a server was asked, and after a reconnect, when it may be another one. */
const UNKNOWN: Facts = { replicas: null, durable: false };

/** What the primaries say about themselves, and what may be guaranteed because of it. */
export class ServerFacts {
  readonly #driver: RedisDriver;
  readonly #timeouts: CallTimeouts;
  #facts = UNKNOWN;
  #replicasMax = 0;

  constructor(driver: RedisDriver, timeouts: CallTimeouts) {
    this.#driver = driver;
    this.#timeouts = timeouts;
  }

  /** The most replicas that were ever seen: one that is away still counts for a majority. */
  get replicasMax(): number {
    return this.#replicasMax;
  }

  /** Ask all primaries. A right that is missing makes a fact unknown; a server that is away is an error. */
  async read(): Promise<void> {
    // After a fail-over the facts may be others: until they are read none of them counts.
    this.#facts = UNKNOWN;
    const facts = await this.#askAll((call) => this.#factsOf(call));
    this.#facts = {
      replicas: facts.reduce<number | null>(
        (most, { replicas }) => (most === null || replicas === null ? null : Math.max(most, replicas)),
        0,
      ),
      durable: facts.every(({ durable }) => durable),
    };
    this.#replicasMax = Math.max(this.#replicasMax, this.#facts.replicas ?? 0);
  }

  /** What cannot be read off the server counts as not guaranteed. */
  guarantees(wake: Guarantees["wake"]): Guarantees {
    const alone = this.#driver.topology !== "sentinel" && this.#facts.replicas === 0;
    return {
      exclusion: alone ? "single-server" : "until-failover",
      token: "monotonic-if-clocks",
      order: "fifo",
      wake,
      crashRelease: "lease",
      survivesRestart: this.#facts.durable,
    };
  }

  /** Who the primaries are, now. */
  async serverInfo(): Promise<ServerInfo> {
    const texts = await this.#askAll((call) => this.#text(() => call(["info"])));
    const read = (text: string, field: string): string | undefined =>
      new RegExp(`^${field}:([^\\s]+)`, "m").exec(text)?.[1];
    const runIds = texts.map((text) => read(text, "run_id") ?? "");
    // Whole seconds on both sides: it may have started nearly one later than that.
    const upMs = Math.min(...texts.map((text) => (Number(read(text, "uptime_in_seconds")) - 1) * 1000));
    const replicas = Math.max(...texts.map((text) => Number(read(text, "connected_slaves"))));
    return {
      server: runIds.includes("") ? "" : `redis ${runIds.toSorted().join(" ")}`,
      ...(Number.isFinite(upMs) ? { upMs: Math.max(0, upMs) } : {}),
      ...(Number.isFinite(replicas) ? { replicas } : {}),
      replica: texts.some((text) => read(text, "role") === "slave"),
      cluster: this.#driver.topology === "cluster" || texts.some((text) => read(text, "redis_mode") === "cluster"),
    };
  }

  async #askAll<T>(ask: (call: Call) => Promise<T>): Promise<readonly T[]> {
    try {
      return await Promise.all((await this.#driver.primaries()).map(ask));
    } catch (cause) {
      throw translateError(cause);
    }
  }

  async #factsOf(call: Call): Promise<Facts> {
    const info = await this.#text(() => call(["info", "replication"]));
    const role = /^role:(\w+)/m.exec(info)?.[1];
    if (role === "slave" && this.#driver.topology === "single") {
      const advice = "Connect to the primary, or through Sentinel: a replica grants nothing.";
      throw new EngineRefusedError("redis", advice, new Error("this server is a replica"));
    }
    const replicas = /^connected_slaves:(\d+)/m.exec(info)?.[1];
    const config = await this.#text(() => call(["config", "get", "append*"]));
    const durable = /appendonly,yes/.test(config) && /appendfsync,always/.test(config);
    return { replicas: replicas === undefined ? null : Number(replicas), durable };
  }

  /** The answer as text, whatever the protocol made of it; empty when the server refuses to say. */
  async #text(call: () => Promise<unknown>): Promise<string> {
    try {
      const answer = await this.#timeouts.limit(call());
      if (isText(answer)) return String(answer);
      if (Array.isArray(answer)) return answer.flat().join(",");
      if (answer instanceof Map) return [...answer].flat().join(",");
      if (typeof answer === "object" && answer !== null) return Object.entries(answer).flat().join(",");
      return String(answer);
    } catch (cause) {
      const error = translateError(cause);
      // Renamed, forbidden by an ACL, or unknown to a proxy: it will not say.
      if (error instanceof EngineRefusedError && !/NOAUTH|WRONGPASS|DENIED/.test(error.message)) return "";
      if (error.message.startsWith("ERR")) return "";
      throw error;
    }
  }
}
