import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import { InvalidOptionError } from "../../core/errors.js";
import { CALL_TIMEOUT_DEFAULT_MS, TIMER_MAX_MS } from "../../core/limits.js";
import { checkKnown, checkNumber, shown } from "../../core/options.js";

export interface PostgresOptions {
  /** Where the lock table lives; `holdfast` unless said otherwise. */
  readonly schema?: string;
  /** `false`: do not make or update the lock table; fail when it is not there. */
  readonly migrate?: boolean;
  /** `false`: a commit does not wait for the disk. Faster; a crash of the server may forget the last grants. */
  readonly durable?: boolean;
  /** `poll`: do not listen, for poolers. Found out by itself when there is one. */
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
  "durable",
  "wake",
  "callTimeoutMs",
  "clock",
  "chance",
] satisfies (keyof PostgresOptions)[];

/** `PostgresOptions` after the check, with the defaults in place. */
export type Settings = Required<PostgresOptions>;

/** Below the 63 bytes of an identifier: channels and prepared statements carry it in their names. */
const SCHEMA_ALLOWED = /^[A-Za-z_][A-Za-z0-9_$-]{0,39}$/;

export function checkOptions(options: PostgresOptions): Settings {
  checkKnown(options, OPTIONS);
  const { schema = "holdfast", migrate = true, durable = true, wake = "push" } = options;
  const { callTimeoutMs = CALL_TIMEOUT_DEFAULT_MS, clock = new SystemClock(), chance = new SystemChance() } = options;
  if (typeof schema !== "string" || !SCHEMA_ALLOWED.test(schema)) {
    const allowed = "a letter or _, then up to 39 of A-Z, a-z, 0-9, _, $ and -";
    throw new InvalidOptionError("schema", shown(schema), allowed);
  }
  checkBoolean("migrate", migrate);
  checkBoolean("durable", durable);
  if (wake !== "push" && wake !== "poll") throw new InvalidOptionError("wake", shown(wake), '"push" or "poll"');
  checkNumber("callTimeoutMs", callTimeoutMs, 1, TIMER_MAX_MS, "milliseconds");
  return { schema, migrate, durable, wake, callTimeoutMs, clock, chance };
}

function checkBoolean(option: string, value: boolean): void {
  if (typeof value !== "boolean") throw new InvalidOptionError(option, shown(value), "true or false");
}
