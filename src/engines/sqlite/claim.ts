import type { ClaimAnswer, ClaimRequest } from "../../core/engine.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { LockTables } from "./lock-tables.js";
import { fits, isIdle, type NameRow } from "./rows.js";

export function claim(tables: LockTables, request: ClaimRequest): ClaimAnswer {
  const { name, claim } = tables.loadCurrent(request);
  if (tables.hasTombstone(request)) return { kind: "gone" };
  if (claim !== undefined) return tables.answer(name, claim);
  // Nobody overtakes: with others waiting even a claim that would fit has to queue.
  const enters = (): boolean => name.waiters === 0 && fits(name, request.units);
  const blocked = !isIdle(name) && (name.capacity !== request.capacity || !enters());
  if (blocked) tables.removeEnded(name);
  if (isIdle(name)) start(name, request.capacity);
  if (name.capacity !== request.capacity) return { kind: "mismatch", capacity: name.capacity };
  if (enters()) return tables.granted(name, tables.add(name, request, request.leaseMs, true));
  if (!request.wait) return { kind: "busy", ...tables.holderOf(name) };
  const ahead = tables.aheadOf(name);
  return { ...tables.queued(name, tables.add(name, request, waiterLeaseMs(request.leaseMs), false)), ...ahead };
}

/** An idle name takes the capacity of its first claim. */
function start(name: NameRow, capacity: number): void {
  Object.assign(name, { capacity, taken: 0, soonestEnd: Infinity, frontToken: 0, frontEnd: Infinity, dirty: true });
}
