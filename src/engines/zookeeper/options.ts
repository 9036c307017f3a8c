import type { ConnectionOptions } from "node:tls";
import { checkKnown, checkNumber, shown } from "../../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import { InvalidOptionError } from "../../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, TIMER_MAX_MS } from "../../core/limits.js";
import { secureContextOf } from "../../engine-kit/tls.js";
import type { Acl } from "./drivers/wire/protocol.js";
import { NODE_NAMES, type NodeNames } from "./node-names.js";

/** What the engine needs to know, whichever client it has. */
export interface ZooKeeperOptions {
  /** The folder of all names; `/holdfast` unless said otherwise. */
  readonly base?: string;
  /** Whose recipes the nodes look like: `curator` (Java's locks, the default), `curator-latch` (its `LeaderLatch`) or `kazoo` (Python). */
  readonly nodeNames?: NodeNames;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

/** What our own client needs besides. */
export interface ZooKeeperUrlOptions extends ZooKeeperOptions {
  /** How long the servers wait for a heartbeat of this program; they may have limits of their own. 20 s unless said otherwise. */
  readonly sessionTimeoutMs?: number;
  /** How long to wait for an answer and for the first connection; 5 s unless said otherwise. */
  readonly callTimeoutMs?: number;
  readonly tls?: ConnectionOptions;
  /** Who may use the nodes: everybody, whoever gave the same user and password, or a list. */
  readonly acl?: "open" | "creator" | readonly Acl[];
}

const OPTIONS: readonly string[] = ["base", "nodeNames", "clock", "chance"] satisfies (keyof ZooKeeperOptions)[];

const URL_OPTIONS: readonly string[] = [
  ...OPTIONS,
  ...(["sessionTimeoutMs", "callTimeoutMs", "tls", "acl"] satisfies (keyof ZooKeeperUrlOptions)[]),
];

export type Settings = Required<ZooKeeperOptions>;

/**
 * Twice a waiter's lease: then a grant after waiting is known to be safe without asking once more, although only the last
 * heartbeat but one counts.
 */
const SESSION_DEFAULT_MS = 20_000;
const SESSION_MIN_MS = 500;

/** Every permission. */
const ALL = 31;
const OPEN: Acl = { perms: ALL, scheme: "world", id: "anyone" };
const CREATOR: Acl = { perms: ALL, scheme: "auth", id: "" };

export function checkOptions(options: ZooKeeperOptions, known = OPTIONS): Settings {
  checkKnown(options, known);
  const { base = "/holdfast", nodeNames = "curator", clock = new SystemClock(), chance = new SystemChance() } = options;
  if (!NODE_NAMES.includes(nodeNames)) {
    throw new InvalidOptionError("nodeNames", shown(nodeNames), '"curator", "curator-latch" or "kazoo"');
  }
  return { base: checkBase(base), nodeNames, clock, chance };
}

export function checkUrlOptions(options: ZooKeeperUrlOptions, authenticated: boolean) {
  const settings = checkOptions(options, URL_OPTIONS);
  const { sessionTimeoutMs = SESSION_DEFAULT_MS, callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS, tls } = options;
  const { acl = authenticated ? "creator" : "open" } = options;
  checkNumber("sessionTimeoutMs", sessionTimeoutMs, SESSION_MIN_MS, TIMER_MAX_MS, "milliseconds");
  checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds");
  if (tls !== undefined) secureContextOf(tls);
  return { settings, wire: { sessionTimeoutMs: Math.round(sessionTimeoutMs), tls, acl: checkAcl(acl) }, callTimeoutMs };
}

function checkBase(base: unknown): string {
  const parts = typeof base === "string" ? base.split("/") : [];
  const [root, ...folders] = parts;
  const allowed = "a path like /locks/orders: no empty part, none that is . or .., not below /zookeeper";
  // oxlint-disable-next-line no-control-regex
  const wrong = /^$|^\.\.?$|[\u0000-\u001f\u007f-\u009f\ud800-\uf8ff\ufff0-\uffff]/;
  if (
    typeof base !== "string" ||
    root !== "" ||
    folders.length === 0 ||
    folders.some((folder) => wrong.test(folder)) ||
    folders[0] === "zookeeper"
  ) {
    throw new InvalidOptionError("base", shown(base), allowed);
  }
  return base;
}

function checkAcl(acl: unknown): readonly Acl[] {
  if (acl === "open") return [OPEN];
  if (acl === "creator") return [CREATOR];
  const isAcl = (entry: unknown): entry is Acl => {
    const { perms, scheme, id } = (entry ?? {}) as Partial<Acl>;
    return Number.isInteger(perms) && typeof scheme === "string" && typeof id === "string";
  };
  if (Array.isArray(acl) && acl.length > 0 && acl.every(isAcl)) return acl;
  throw new InvalidOptionError("acl", shown(acl), '"open", "creator", or a list of { perms, scheme, id }');
}
