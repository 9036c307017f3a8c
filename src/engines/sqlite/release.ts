import type { ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import type { LockTables } from "./lock-tables.js";

export function release(tables: LockTables, request: ReleaseRequest): ReleaseAnswer {
  const { name, id, tombstone, to } = request;
  const claim = tables.take(request, to);
  // Before this release writes its own tombstone: one that is there already is somebody else's.
  const revoked = claim === undefined && tables.hasTombstone(request);
  if (tombstone !== "never") tables.addTombstone(request);
  if (claim === undefined) return revoked ? "revoked" : "gone";
  // Released by somebody else than its owner, who is told.
  if (claim.client !== tables.client) tables.push(claim.client, { kind: "lost", name, id });
  return "released";
}
