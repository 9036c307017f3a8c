import type { NameState } from "../core/inspect.js";
import { findDeadlocks, stakeOf } from "../recipes/deadlock-graph.js";
import { DEADLOCK_WAITERS_MAX } from "./limits.js";

/**
 * The waiting claims of each deadlock, by their ids: of those that say what they hold (`detectDeadlockAfterMs`). Null: too many
 * wait.
 */
export function deadlocksOf(states: readonly NameState[]): (readonly string[])[] | null {
  const stakes = states.flatMap(({ waiters }) => waiters.flatMap((waiter) => stakeOf(waiter) ?? []));
  const held = new Set(stakes.flatMap(({ holds }) => holds.map(({ name }) => name)));
  // In a deadlock somebody holds each name, and somebody waits for it.
  const involved = states.filter(({ name, waiters }) => held.has(name) && waiters.length > 0);
  if (involved.reduce((sum, { waiters }) => sum + waiters.length, 0) > DEADLOCK_WAITERS_MAX) return null;
  return findDeadlocks(involved).map(({ waits }) => waits);
}
