import type { ReleaseAnswer, ReleaseRequest } from "../../core/engine.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import type { LockTables } from "./lock-tables.js";

export function release(tables: LockTables, { name: text, id, tombstone, to }: ReleaseRequest): ReleaseAnswer {
  const { sql, now, client } = tables;
  // Before this release writes its own tombstone: one that is there already is somebody else's.
  const { name, claim, hasTombstone } = tables.loadCurrent({ name: text, id });
  if (tombstone !== "never") sql.tombstonePut.run(id, text, now + TOMBSTONE_MS);
  if (claim === undefined) return hasTombstone ? "revoked" : "gone";
  tables.remove(name, claim, to);
  // Released by somebody else than its owner, who is told.
  if (claim.client !== client) tables.push(claim.client, { kind: "lost", name: text, id });
  return "released";
}
