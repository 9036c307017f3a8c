import type { ClaimState } from "../core/inspect.js";

/** How long a claim has held or waited, by the store; undefined where it does not say. */
export function ageMsOf(claim: ClaimState): number | undefined {
  const { heldMs, waitingMs } = claim as { readonly heldMs?: number; readonly waitingMs?: number };
  return heldMs ?? waitingMs;
}
