import type { ConnectionOptions } from "node:tls";
import { checkKnown, checkNumber, shown } from "../../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import { InvalidOptionError } from "../../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, TIMER_MAX_MS } from "../../core/limits.js";
import { CONTROL } from "../../core/name.js";
import type { CredentialsFunction } from "../../engine-kit/credentials.js";

export interface EtcdOptions {
  /** Put before every key; `holdfast/` unless said otherwise. `etcdctl lock` takes the same lock at prefix + name. */
  readonly prefix?: string;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

/** How an engine is opened by URL. */
export interface EtcdUrlOptions extends EtcdOptions {
  /** For `etcds:`, or to turn TLS on: certificates, host name, as `node:tls` takes them. */
  readonly tls?: ConnectionOptions;
  /** Who to connect as, asked whenever etcd wants to know: at first, and when its token has ended. */
  readonly credentials?: CredentialsFunction;
  /** How long one call may take before it counts as unanswered; 5 s unless said otherwise. With several members a third of it each. */
  readonly callTimeoutMs?: number;
}

/** `EtcdOptions` after the check, with the defaults in place. */
export type Settings = Required<EtcdOptions>;

const PREFIX_MAX = 200;

export function checkOptions(options: EtcdOptions): Settings {
  checkKnown(options, ["prefix", "clock", "chance"] satisfies (keyof EtcdOptions)[]);
  const { prefix = "holdfast/", clock = new SystemClock(), chance = new SystemChance() } = options;
  if (typeof prefix !== "string" || prefix.length > PREFIX_MAX || CONTROL.test(prefix) || !prefix.isWellFormed()) {
    const allowed = `a string of at most ${PREFIX_MAX} characters, none of control`;
    throw new InvalidOptionError("prefix", shown(prefix), allowed);
  }
  return { prefix, clock, chance };
}

export function checkCallTimeout(callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS): number {
  return checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds");
}
