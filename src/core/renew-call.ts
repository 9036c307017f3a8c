import type { Clock } from "./clock.js";
import { type Deadlines, Moment } from "./deadlines.js";
import type { Engine, RenewAnswer, RenewRequest } from "./engine.js";
import { ClosedError } from "./errors.js";

/** One call with heartbeats, within the time limit of a call. Not sent again: the loop does that. */
export async function renewWithin(
  limitMs: number,
  engine: Engine,
  clock: Clock,
  deadlines: Deadlines,
  requests: readonly RenewRequest[],
): Promise<readonly RenewAnswer[]> {
  const now = clock.now();
  let end: (error: Error) => void = () => {};
  const late = new Promise<never>((_, reject) => (end = reject));
  const limit = new Moment();
  const limited = {
    due: () => end(new Error(`no answer within ${limitMs} ms`)),
    stopped: () => end(new ClosedError("renewing")),
  };
  deadlines.set(limit, limited, now + limitMs, now);
  try {
    return await Promise.race([engine.renew(requests), late]);
  } finally {
    deadlines.clear(limit);
  }
}
