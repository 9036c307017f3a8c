import { checkNumber, shown } from "./checks.js";
import type { Clock } from "./clock.js";
import type { Engine } from "./engine.js";
import { InvalidOptionError, UnsupportedError } from "./errors.js";
import { assertByLease } from "./hold-state.js";
import { LEASE_MIN_MS, TIMER_MAX_MS } from "./limits.js";

/** Which thread sends the heartbeats of what is held. */
export interface RenewInOptions {
  /**
   * `"worker"`: a thread of its own, so that a busy event loop does not lose what it holds. For URLs of stores whose holds live by
   * lease.
   */
  readonly renewIn?: "main" | "worker";
  /** How long the program's thread may stand still before `renewIn: "worker"` renews no more; 10 s unless said otherwise. */
  readonly stallMs?: number;
}

/** Before anything is opened. `live`: an engine was passed in, not a URL. */
export function checkRenewIn(live: boolean, options: RenewInOptions & { readonly clock?: Clock }): void {
  const { renewIn = "main", stallMs, clock } = options;
  if (renewIn !== "main" && renewIn !== "worker") {
    throw new InvalidOptionError("renewIn", shown(renewIn), '"main" or "worker"');
  }
  if (stallMs !== undefined) {
    checkNumber("stallMs", stallMs, LEASE_MIN_MS, TIMER_MAX_MS, "milliseconds");
    if (renewIn === "main") throw new InvalidOptionError("stallMs", "no other thread renews", 'with renewIn: "worker"');
  }
  if (renewIn === "main") return;
  const allowed = '"worker" with a URL, by which the other thread opens a connection of its own';
  if (live) throw new InvalidOptionError("renewIn", "an engine cannot be sent to another thread", allowed);
  if (clock !== undefined) throw new InvalidOptionError("renewIn", "a clock cannot be sent to another thread", allowed);
}

/** Whether another connection of the same store can keep what this one holds. */
export function assertRenewableElsewhere(engine: Engine): void {
  assertByLease(engine, "a hold lives by the session of its connection, which no other thread can keep (renewIn)");
  if (engine.guarantees.exclusion !== "one-process") return;
  throw new UnsupportedError(engine.kind, "its locks are in the memory of one thread (renewIn)", "Use another store.");
}
