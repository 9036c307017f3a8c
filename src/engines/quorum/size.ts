// Beyond the fixed set of files: the rule that everything here rests on.
import { READERS_MAX } from "../../core/limits.js";

/**
 * How many members must grant.
 *
 * Every holder stands on `quorum` members and no member carries more than its capacity c. If more than c units were out,
 * (c + 1) · quorum ≤ c · members; so with more than c · members / (c + 1) they cannot be (`pitfalls.md` 28). Mutexes and
 * read-write locks conflict in pairs: for them a majority is enough.
 */
export function quorumSize(members: number, capacity: number): number {
  const unitsThatFit = capacity === READERS_MAX ? 1 : capacity;
  return Math.floor((unitsThatFit * members) / (unitsThatFit + 1)) + 1;
}
