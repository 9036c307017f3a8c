import { checkCount, checkDetection, checkKnown, checkLabel, checkLease, checkNumber, shown } from "./core/checks.js";
import { Client, type ClientSettings } from "./core/client.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "./core/clock.js";
import type { Engine } from "./core/engine.js";
import { InvalidOptionError, UnsupportedError } from "./core/errors.js";
import type { Guarantees } from "./core/guarantees.js";
import {
  CALL_TIMEOUT_DEFAULT_MS,
  CLAIMS_DEFAULT,
  CLAIMS_MAX,
  LEASE_DEFAULT_MS,
  STALL_DEFAULT_MS,
  TIMER_MAX_MS,
  TOKEN_BASE_MAX,
  WAITERS_DEFAULT,
} from "./core/limits.js";
import { checkRenewIn, type RenewInOptions } from "./core/renew-in.js";
import type { EtcdUrlOptions } from "./engines/etcd/index.js";
import type { MysqlUrlOptions } from "./engines/mysql/index.js";
import type { PostgresUrlOptions } from "./engines/postgres/index.js";
import type { QuorumMember, QuorumOptions } from "./engines/quorum/index.js";
import type { RedisUrlOptions } from "./engines/redis/index.js";
import type { ZooKeeperUrlOptions } from "./engines/zookeeper/index.js";
import { Locks } from "./locks.js";

/** Guarantees to demand: a value, or several that will do. */
export type RequiredGuarantees = { readonly [Key in keyof Guarantees]?: Guarantees[Key] | readonly Guarantees[Key][] };

type RedisConnectOptions = Pick<
  RedisUrlOptions,
  "prefix" | "layout" | "ack" | "ackTimeoutMs" | "wake" | "tls" | "credentials"
>;

type PostgresConnectOptions = Pick<PostgresUrlOptions, "schema" | "migrate" | "durable" | "wake" | "credentials">;

type MysqlConnectOptions = Pick<MysqlUrlOptions, "schema" | "migrate" | "wake" | "credentials">;

type EtcdConnectOptions = Pick<EtcdUrlOptions, "prefix" | "tls" | "credentials">;

type ZooKeeperConnectOptions = Pick<ZooKeeperUrlOptions, "base" | "nodeNames" | "sessionTimeoutMs" | "acl" | "tls">;

type QuorumConnectOptions = Pick<QuorumOptions, (typeof QUORUM)[number]>;

/** What every store takes. */
export interface CommonOptions extends RenewInOptions {
  /** The lease of every lock that does not say its own; 10 s unless said otherwise. */
  readonly leaseMs?: number;
  /** How long one call to the store may take before it counts as unanswered; 5 s unless said otherwise. */
  readonly callTimeoutMs?: number;
  /** Shown to others in errors, events and `inspect`. */
  readonly label?: string;
  /** How many callers may wait for one name here; the next is refused with `TooManyWaitersError`. 10,000 unless said otherwise. */
  readonly maxWaiters?: number;
  /** How many claims and holds there may be here; the next is refused with `TooManyClaimsError`. 200,000 unless said otherwise. */
  readonly maxClaims?: number;
  /** Fail at once when the store does not guarantee this. */
  readonly require?: RequiredGuarantees;
  /** For every wait that does not say its own; see `AcquireOptions`. Not unless said. */
  readonly detectDeadlockAfterMs?: number;
  /** Added to every token, for moving to a store whose numbers are smaller than the old one's. */
  readonly tokenBase?: number;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

/** What only URLs of one kind take, by their scheme. Given to any other it is an unknown option. */
type OptionsByScheme = {
  memory: object;
  sqlite: object;
  redis: RedisConnectOptions;
  rediss: RedisConnectOptions;
  "redis+sentinel": RedisConnectOptions;
  "redis+cluster": RedisConnectOptions;
  "rediss+sentinel": RedisConnectOptions;
  "rediss+cluster": RedisConnectOptions;
  redlock: RedisConnectOptions & QuorumConnectOptions;
  postgres: PostgresConnectOptions;
  postgresql: PostgresConnectOptions;
  mysql: MysqlConnectOptions;
  mariadb: MysqlConnectOptions;
  etcd: EtcdConnectOptions;
  etcds: EtcdConnectOptions;
  zookeeper: ZooKeeperConnectOptions;
  "zookeeper+tls": ZooKeeperConnectOptions;
};

type AllOptions = RedisConnectOptions &
  PostgresConnectOptions &
  EtcdConnectOptions &
  ZooKeeperConnectOptions &
  QuorumConnectOptions;

/**
 * The options for a target: for a URL written out, those of its scheme; for one that is known only when the program runs, those
 * of all; for a list of URLs, those of a quorum and of its members.
 */
export type ConnectOptions<Target = string> = CommonOptions &
  (Target extends readonly string[]
    ? AllOptions
    : Target extends `${infer Scheme}:${string}`
      ? Scheme extends keyof OptionsByScheme
        ? OptionsByScheme[Scheme]
        : AllOptions
      : Target extends string
        ? AllOptions
        : object);

const OPTIONS: readonly string[] = [
  "leaseMs",
  "callTimeoutMs",
  "label",
  "maxWaiters",
  "maxClaims",
  "renewIn",
  "stallMs",
  "require",
  "tokenBase",
  "detectDeadlockAfterMs",
  "clock",
  "chance",
] satisfies (keyof CommonOptions)[];

const QUORUM = ["memberTimeoutMs", "driftRatio", "driftMs", "restartGuardMs", "spareVotes"] as const;

/** One kind of URL: the options that only it takes, and how it is opened. The engine is loaded on first use. */
type Opener = {
  readonly options: readonly (keyof ConnectOptions)[];
  open(url: string, options: ConnectOptions): Promise<Engine>;
};

const REDIS: Opener = {
  options: ["prefix", "layout", "ack", "ackTimeoutMs", "wake", "tls", "credentials"],
  async open(url, options) {
    const { openRedis } = await import("./engines/redis/index.js");
    const { callTimeoutMs, clock, chance } = options;
    const own = Object.fromEntries(this.options.map((option) => [option, options[option]]));
    return openRedis(url, defined({ ...own, callTimeoutMs, clock, chance }));
  },
};

const POSTGRES: Opener = {
  options: ["schema", "migrate", "durable", "wake", "credentials"],
  async open(url, options) {
    const { openPostgres } = await import("./engines/postgres/index.js");
    return openPostgres(url, ownOptions(this.options, options));
  },
};

const MYSQL: Opener = {
  options: ["schema", "migrate", "wake", "credentials"],
  async open(url, options) {
    const { openMysql } = await import("./engines/mysql/index.js");
    return openMysql(url, ownOptions(this.options, options));
  },
};

const ETCD: Opener = {
  options: ["prefix", "tls", "credentials"],
  async open(url, options) {
    const { openEtcd } = await import("./engines/etcd/index.js");
    return openEtcd(url, ownOptions(this.options, options));
  },
};

const ZOOKEEPER: Opener = {
  options: ["base", "nodeNames", "sessionTimeoutMs", "acl", "tls"],
  async open(url, options) {
    const { openZookeeper } = await import("./engines/zookeeper/index.js");
    return openZookeeper(url, ownOptions(this.options, options));
  },
};

function ownOptions(names: readonly (keyof ConnectOptions)[], options: ConnectOptions): object {
  const { callTimeoutMs, clock, chance } = options;
  return defined({ ...Object.fromEntries(names.map((name) => [name, options[name]])), callTimeoutMs, clock, chance });
}

/** One engine over several: `redlock:` with its Redis servers, or a list of URLs of any kind. */
async function openQuorum(members: readonly QuorumMember[], options: ConnectOptions): Promise<Engine> {
  const { quorumEngine } = await import("./engines/quorum/index.js");
  const { callTimeoutMs: _ofMembers, ...own } = ownOptions(QUORUM, options) as ConnectOptions;
  return quorumEngine(members, own);
}

const REDLOCK: Opener = {
  options: [...REDIS.options, ...QUORUM],
  async open(url, options) {
    const { parseRedlockUrl } = await import("./engines/quorum/index.js");
    const members = parseRedlockUrl(url).map(({ name, url }) => ({ name, open: () => REDIS.open(url, options) }));
    return openQuorum(members, options);
  },
};

/** By URL scheme. */
const ENGINES: Record<string, Opener> = {
  memory: { options: [], open: async (url) => (await import("./engines/memory/index.js")).openMemory(url) },
  sqlite: { options: [], open: async (url) => (await import("./engines/sqlite/index.js")).openSqlite(url) },
  redis: REDIS,
  redlock: REDLOCK,
  rediss: REDIS,
  "redis+sentinel": REDIS,
  "redis+cluster": REDIS,
  "rediss+sentinel": REDIS,
  "rediss+cluster": REDIS,
  postgres: POSTGRES,
  postgresql: POSTGRES,
  mysql: MYSQL,
  mariadb: MYSQL,
  etcd: ETCD,
  etcds: ETCD,
  zookeeper: ZOOKEEPER,
  "zookeeper+tls": ZOOKEEPER,
};

/**
 * Open a store by its URL, several by a list of URLs that decide together as a quorum, or use an engine that you made. An
 * engine of yours stays yours to dispose; what a URL opened is disposed by `locks.close()`.
 */
export async function connect<const Target extends string | readonly string[] | Engine | undefined = undefined>(
  target?: Target,
  options: ConnectOptions<Target> = {} as ConnectOptions<Target>,
): Promise<Locks> {
  const meant = target === undefined ? process.env.HOLDFAST_URL : target;
  const opener = openerOf(meant);
  const settings = checkSettings(options, opener.options);
  checkRenewIn(typeof meant === "object" && !Array.isArray(meant), options);
  const { clock = new SystemClock(), chance = new SystemChance() } = options;
  const engine = await opener.open(options);
  const own = engine !== target;
  try {
    demand(engine, options.require ?? {});
    const { renewIn, stallMs = STALL_DEFAULT_MS } = options;
    const start = async () => {
      const own = ownOptions(opener.options as (keyof ConnectOptions)[], { ...options, chance: undefined } as object);
      const { startWorker } = await import("./renew-in-worker.js");
      return startWorker(engine, { target: meant as string | undefined, options: own, stallMs }, clock, settings);
    };
    const worker = renewIn === "worker" ? await start() : null;
    const client = new Client(engine, clock, chance, settings, worker?.holdLoop);
    return new Locks(client, async () => {
      await worker?.close(clock, settings.callTimeoutMs);
      if (own) await engine[Symbol.asyncDispose]();
    });
  } catch (error) {
    if (own) await engine[Symbol.asyncDispose]();
    throw error;
  }
}

/** What a URL opens, without a client. @internal */
export async function openTarget(
  target: string | readonly string[] | undefined,
  options: object = {},
): Promise<Engine> {
  return openerOf(target).open(options);
}

function checkSettings(options: ConnectOptions, more: readonly string[]): ClientSettings {
  checkKnown(options, [...OPTIONS, ...more]);
  const { leaseMs = LEASE_DEFAULT_MS, callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS, tokenBase = 0, label } = options;
  const { maxWaiters = WAITERS_DEFAULT, maxClaims = CLAIMS_DEFAULT } = options;
  return {
    leaseMs: checkLease(leaseMs),
    callTimeoutMs: checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds"),
    tokenBase: checkCount("tokenBase", tokenBase, 0, TOKEN_BASE_MAX),
    label: checkLabel(label),
    maxWaiters: checkCount("maxWaiters", maxWaiters, 1, CLAIMS_MAX),
    maxClaims: checkCount("maxClaims", maxClaims, 1, CLAIMS_MAX),
    detectDeadlockAfterMs: checkDetection(options.detectDeadlockAfterMs),
  };
}

/** Without what was not given. */
function defined(options: object): object {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}

type Openable = { readonly options: readonly string[]; open(options: ConnectOptions): Promise<Engine> };

function openerOf(target: string | readonly string[] | Engine | undefined): Openable {
  const schemes = Object.keys(ENGINES).map((scheme) => `${scheme}:`);
  const allowed = `an engine, a list of URLs, or a URL that starts with ${schemes.join(", ")}`;
  if (Array.isArray(target)) return quorumOf(target as readonly unknown[]);
  // The embedded default: a file that all programs of this user share.
  if (target === undefined) {
    return { options: [], open: async () => (await import("./engines/sqlite/index.js")).openSqlite() };
  }
  if (typeof target === "object" && target !== null && "claim" in target && typeof target.claim === "function") {
    return { options: [], open: async () => target };
  }
  if (typeof target !== "string") throw new InvalidOptionError("url", shown(target), allowed);
  const scheme = /^([a-z][a-z0-9+]*):/i.exec(target)?.[1]?.toLowerCase() ?? "";
  const opener = Object.hasOwn(ENGINES, scheme) ? ENGINES[scheme] : undefined;
  // Only the scheme is shown: the rest of a URL may hold a password. What stands before `:…@` alone is a user.
  if (opener === undefined) {
    const isScheme = scheme !== "" && !/^[^/]*@/.test(target);
    throw new InvalidOptionError("url", isScheme ? `it starts with "${scheme}:"` : "it has no scheme", allowed);
  }
  return { options: opener.options, open: (options) => opener.open(target, options) };
}

function quorumOf(urls: readonly unknown[]): Openable {
  const members = urls.map((url, n) => {
    if (typeof url !== "string")
      throw new InvalidOptionError(`url[${n}]`, shown(url), "a URL; engines go to quorumEngine()");
    return { url, opener: openerOf(url) };
  });
  return {
    options: [...QUORUM, ...members.flatMap(({ opener }) => opener.options)],
    open: (options) =>
      openQuorum(
        members.map(({ url, opener }, n) => ({ name: nameOf(url, n), open: () => opener.open(options) })),
        options,
      ),
  };
}

/** What messages call a member: its host and port, never its account, also where a password holds what should be escaped. */
function nameOf(url: string, n: number): string {
  const [, scheme = "", hosts = ""] = /^([^:]+):\/\/(?:.*@)?([^/?#@]*)/s.exec(url) ?? [];
  return hosts === "" ? `${url.split(":", 1)[0] ?? ""} ${n + 1}` : `${scheme}://${hosts}`;
}

function demand(engine: Engine, required: RequiredGuarantees): void {
  checkKnown(required, Object.keys(engine.guarantees));
  for (const [key, wanted] of Object.entries(required)) {
    if (wanted === undefined) continue;
    const actual = engine.guarantees[key as keyof Guarantees];
    const choices: readonly unknown[] = Array.isArray(wanted) ? wanted : [wanted];
    if (choices.includes(actual)) continue;
    const missing = `${key} must be ${choices.map(String).join(" or ")}, and it guarantees ${String(actual)}`;
    throw new UnsupportedError(engine.kind, missing, "Use a store that guarantees it, or demand less.");
  }
}
