// Beside the usual files: `resize` and `setCapacity` of the contract, which change how much of a name is taken.
import type { CapacityAnswer, ClaimRef } from "../../core/engine.js";
import type { LockTables } from "./lock-tables.js";
import { countRemoved, isIdle } from "./rows.js";

export function resize(tables: LockTables, ref: ClaimRef, units: number): "resized" | "refused" | "gone" {
  const { name, claim } = tables.loadCurrent(ref);
  if (claim === undefined) return "gone";
  if (claim.holds === 0 || units > claim.units) return "refused";
  tables.shrink(name, claim, units);
  return "resized";
}

export function setCapacity(tables: LockTables, text: string, from: number, to: number): CapacityAnswer {
  const { name } = tables.loadCurrent({ name: text, id: "" });
  if (isIdle(name) || name.capacity === to) return { kind: "set" };
  if (name.capacity !== from) return { kind: "mismatch", capacity: name.capacity };
  name.capacity = to;
  name.dirty = true;
  for (const { id, client, endsAt } of tables.sql.waitersTooLarge.all(text, to)) {
    countRemoved(name, { holds: 0, units: 0 });
    // A dead one was no waiter any more: it lost nothing.
    if (endsAt > tables.now) tables.push(client, { kind: "lost", name: text, id });
  }
  tables.advance(name);
  return { kind: "set" };
}
