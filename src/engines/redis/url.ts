import type { ConnectionOptions } from "node:tls";
import { InvalidOptionError } from "../../core/errors.js";
import type { AskCredentials } from "../../engine-kit/credentials.js";
import { decode, type Host, parseHosts, parseUser } from "../../engine-kit/hosts.js";

/** A Redis URL, taken apart. */
export type RedisUrl = {
  readonly topology: "single" | "sentinel" | "cluster";
  readonly hosts: readonly Host[];
  readonly username: string | undefined;
  readonly password: string | undefined;
  /** Instead of the two. */
  readonly credentials?: AskCredentials | undefined;
  readonly db: number;
  /** The name under which Sentinel knows the primary. */
  readonly master: string;
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: string | undefined;
  readonly tls: ConnectionOptions | undefined;
};

const [ONE, SENTINEL, CLUSTER] = [
  "[user:password@]host[:port][/database]",
  "[user:password@]host[:port],host[:port],…/primary-name[/database]",
  "[user:password@]host[:port],host[:port],…",
];

/** With `rediss` by TLS. */
const FORMS = {
  redis: `redis://${ONE}`,
  rediss: `rediss://${ONE}`,
  "redis+sentinel": `redis+sentinel://${SENTINEL}`,
  "rediss+sentinel": `rediss+sentinel://${SENTINEL}`,
  "redis+cluster": `redis+cluster://${CLUSTER}`,
  "rediss+cluster": `rediss+cluster://${CLUSTER}`,
} as const;

const SENTINEL_OPTIONS = new Set(["sentinelUsername", "sentinelPassword"]);

/** Several hosts are more than `URL` can take apart. Errors do not contain the URL: it may hold a password. */
export function parseRedisUrl(url: string, tls?: ConnectionOptions): RedisUrl {
  const [, given = "", userInfo, hostList = "", path = "", query = ""] =
    /^([a-z+]+):\/\/(?:([^@/?#]*)@)?([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/i.exec(url) ?? [];
  const scheme = given.toLowerCase();
  if (!Object.hasOwn(FORMS, scheme)) throw wrong("it cannot be read", Object.values(FORMS).join(" or "));
  const form = FORMS[scheme as keyof typeof FORMS];
  const topology = scheme.endsWith("+sentinel") ? "sentinel" : scheme.endsWith("+cluster") ? "cluster" : "single";
  const wrongHere = (problem: string): InvalidOptionError => wrong(problem, form);
  const hosts = parseHosts(hostList, topology === "sentinel" ? 26379 : 6379, wrongHere);
  if (topology === "single" && hosts.length > 1) throw wrong("it has several hosts", form);
  const segments = path
    .split("/")
    .filter((segment) => segment !== "")
    .map((text) => decode(text, wrongHere));
  const master = topology === "sentinel" ? segments.shift() : "";
  if (master === undefined) throw wrong("it does not name the primary", form);
  const params = new URLSearchParams(query);
  for (const key of params.keys()) {
    if (topology !== "sentinel" || !SENTINEL_OPTIONS.has(key)) throw wrong(`it has the unknown option "${key}"`, form);
  }
  return {
    topology,
    hosts,
    ...parseUser(userInfo, wrongHere),
    db: databaseOf(segments, topology, form),
    master,
    sentinelUsername: params.get("sentinelUsername") ?? undefined,
    sentinelPassword: params.get("sentinelPassword") ?? undefined,
    tls: tls ?? (scheme.startsWith("rediss") ? {} : undefined),
  };
}

function databaseOf(segments: readonly string[], topology: RedisUrl["topology"], form: string): number {
  const [db = "0", ...more] = segments;
  const allowed = topology === "cluster" ? /^0$/ : /^\d{1,5}$/;
  if (more.length > 0 || !allowed.test(db)) throw wrong("what follows the host cannot be read", form);
  return Number(db);
}

function wrong(problem: string, form: string): InvalidOptionError {
  return new InvalidOptionError("url", problem, form);
}
