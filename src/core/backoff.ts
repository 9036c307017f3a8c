import type { Chance } from "./clock.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "./limits.js";

/** How long to wait before the next attempt: doubles with the failures, and is never the same for two programs that failed together. */
export function backoffMs(
  failures: number,
  chance: Chance,
  { minMs = RETRY_MIN_MS, maxMs = RETRY_MAX_MS }: { readonly minMs?: number; readonly maxMs?: number } = {},
): number {
  const mostMs = Math.min(maxMs, minMs * 2 ** Math.min(failures, 10));
  return mostMs * (0.5 + chance.fraction() / 2);
}
