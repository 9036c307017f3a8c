// Beside the usual files: a file has no server that removes what has expired, so its clients do.
import type { LockTables } from "./lock-tables.js";

/** Rows that are removed in one transaction. */
const BATCH = 64;

/** Removes, in batches, rows that nobody reads any more: idle names, ended leases, old tombstones and operations. */
export class Sweep {
  /** The last name that was swept, in order of names. */
  #sweptTo = "";

  /**
   * One batch. True when the end of the names was reached. Only names up to the cursor are removed, so nothing that this
   * transaction works on.
   */
  next(tables: LockTables): boolean {
    const { sql, now } = tables;
    const names = sql.namesAfter.all(this.#sweptTo, BATCH);
    const last = names.at(-1)?.name;
    if (last !== undefined) {
      for (const { name } of sql.namesDue.all(this.#sweptTo, last, now)) tables.loadCurrent({ name, id: "" });
      const tokens = sql.namesIdle.all(this.#sweptTo, last).map((row) => row.lastToken);
      if (tokens.length > 0) sql.floorRaise.run(Math.max(...tokens));
    }
    sql.tombstonesEnded.run(now, BATCH);
    sql.operationsEnded.run(now, BATCH);
    const done = names.length < BATCH;
    this.#sweptTo = done ? "" : (last ?? "");
    return done;
  }
}
