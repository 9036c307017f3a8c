import { checkKnown, checkNumber, shown } from "../core/checks.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../core/clock.js";
import { InvalidOptionError } from "../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, TIMER_MAX_MS } from "../core/limits.js";

/** What a lock table can be told, whatever its database. */
export interface LockTableOptions {
  /** Where the lock table lives, in a schema (MySQL: a database) of its own; `holdfast` unless said otherwise. */
  readonly schema?: string;
  /** `false`: do not make or update the lock table; fail when it is not there. */
  readonly migrate?: boolean;
  /** `poll`: do not listen, for poolers, proxies and servers where it cannot work; mostly found out by itself. */
  readonly wake?: "push" | "poll";
  /** How long one call may take before it counts as unanswered; 5 s unless said otherwise. */
  readonly callTimeoutMs?: number;
  /** Time and chance, for tests. */
  readonly clock?: Clock;
  readonly chance?: Chance;
}

const OPTIONS: readonly string[] = [
  "schema",
  "migrate",
  "wake",
  "callTimeoutMs",
  "clock",
  "chance",
] satisfies (keyof LockTableOptions)[];

/** Below the length of an identifier: channels, prepared statements and named locks carry it in their names. */
const SCHEMA_ALLOWED = /^[A-Za-z_][A-Za-z0-9_$-]{0,39}$/;

/** The options after the check, with the defaults in place. `more`: options that only this database knows. */
export function checkLockTable(options: LockTableOptions, more: readonly string[] = []): Required<LockTableOptions> {
  checkKnown(options, [...OPTIONS, ...more]);
  const { schema = "holdfast", migrate = true, wake = "push" } = options;
  const { callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS, clock = new SystemClock(), chance = new SystemChance() } = options;
  if (typeof schema !== "string" || !SCHEMA_ALLOWED.test(schema)) {
    const allowed = "a letter or _, then up to 39 of A-Z, a-z, 0-9, _, $ and -";
    throw new InvalidOptionError("schema", shown(schema), allowed);
  }
  checkBoolean("migrate", migrate);
  if (wake !== "push" && wake !== "poll") throw new InvalidOptionError("wake", shown(wake), '"push" or "poll"');
  checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds");
  return { schema, migrate, wake, callTimeoutMs, clock, chance };
}

export function checkBoolean(option: string, value: boolean): void {
  if (typeof value !== "boolean") throw new InvalidOptionError(option, shown(value), "true or false");
}
