import { checkCount, checkKnown, checkNumber, shown } from "../../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import { InvalidOptionError } from "../../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, TIMER_MAX_MS } from "../../core/limits.js";
import type { Layout } from "./layouts.js";

export interface RedisOptions {
  /** Put before every key and channel; `holdfast:` unless said otherwise. Shared layouts have their locks at exactly their names. */
  readonly prefix?: string;
  /**
   * `fair` (the default): a queue in order of arrival, every recipe. `plain`: `SET key value NX PX` at exactly the lock's
   * name, for programs that share their mutexes with other libraries. `redisson`, `redisson-fenced`: as Redisson's `RLock` and
   * `RFencedLock`, and its `RCountDownLatch`.
   */
  readonly layout?: "fair" | Layout["name"];
  /** How many replicas must have a grant before it counts; `majority`: of the primary and its replicas. 0 by default. */
  readonly ack?: number | "majority";
  /** How long to wait for these replicas; 1 s unless said otherwise. */
  readonly ackTimeoutMs?: number;
  /** `poll`: do not subscribe, for proxies without pub/sub. Found out by itself when subscribing fails. */
  readonly wake?: "push" | "poll";
  /** How long one command may take before it counts as unanswered; 5 s unless said otherwise. */
  readonly callTimeoutMs?: number;
  /** How long a name's last token is remembered after everything else about the name has ended; a day. */
  readonly idleMs?: number;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

const OPTIONS: readonly string[] = [
  "prefix",
  "layout",
  "ack",
  "ackTimeoutMs",
  "wake",
  "callTimeoutMs",
  "idleMs",
  "clock",
  "chance",
] satisfies (keyof RedisOptions)[];

const DAY_MS = 24 * 60 * 60 * 1000;
const REPLICAS_MAX = 1000;
const PREFIX_MAX = 200;

/** `RedisOptions` after the check, with the defaults in place. */
export type Settings = Required<RedisOptions>;

export function checkOptions(options: RedisOptions): Settings {
  checkKnown(options, OPTIONS);
  const { prefix = "holdfast:", ack = 0, ackTimeoutMs = 1_000, idleMs = DAY_MS } = options;
  const { callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS, clock = new SystemClock(), chance = new SystemChance() } = options;
  // oxlint-disable-next-line no-control-regex
  if (typeof prefix !== "string" || prefix.length > PREFIX_MAX || /[\u0000-\u001f]/.test(prefix))
    throw new InvalidOptionError(
      "prefix",
      shown(prefix),
      `a string of at most ${PREFIX_MAX} characters, none of control`,
    );
  if (ack !== "majority") checkCount("ack", ack, 0, REPLICAS_MAX);
  return {
    prefix,
    ack,
    layout: checkOneOf("layout", options.layout ?? "fair", ["fair", "plain", "redisson", "redisson-fenced"]),
    wake: checkOneOf("wake", options.wake ?? "push", ["push", "poll"]),
    // 0 means "for ever" to WAIT.
    ackTimeoutMs: Math.ceil(checkNumber("ackTimeoutMs", ackTimeoutMs, 1, TIMER_MAX_MS, "milliseconds")),
    callTimeoutMs: checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds"),
    idleMs: Math.ceil(checkNumber("idleMs", idleMs, 1, 365 * DAY_MS, "milliseconds")),
    clock,
    chance,
  };
}

function checkOneOf<T extends string>(option: string, value: T, allowed: readonly T[]): T {
  if (allowed.includes(value)) return value;
  throw new InvalidOptionError(option, shown(value), allowed.map((one) => `"${one}"`).join(" or "));
}
