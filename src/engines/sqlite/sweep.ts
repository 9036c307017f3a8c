// Beside the usual files: a file has no server that removes what has expired, so its clients do.
import type { LockTables } from "./lock-tables.js";

/** Rows that are removed in one transaction. */
const BATCH = 64;

/** Up to which name, in order of names, a batch came; empty at their end. `more`: other rows that have ended are left. */
export type Swept = { readonly to: string; readonly more: boolean };

/** Removes, in batches, rows that nobody reads any more: idle names, ended leases, old tombstones and operations. */
export class Sweep {
  /** The last name that was swept. */
  #sweptTo = "";

  /**
   * One batch, from the last that was committed on. Only names up to the cursor are removed, so nothing that this
   * transaction works on. A name whose last lease is found to have ended is idle from then on, and removed the next time.
   */
  next(tables: LockTables): Swept {
    const { sql, now } = tables;
    // Fails where another machine has opened the file: what has ended by our clock may not have by theirs.
    tables.load({ name: "", id: "" });
    const names = sql.namesAfter.all(this.#sweptTo, BATCH);
    const last = names.at(-1)?.name;
    if (last !== undefined) {
      for (const { name } of sql.namesDue.all(this.#sweptTo, last, now)) tables.loadCurrent({ name, id: "" });
      const tokens = sql.namesIdle.all(this.#sweptTo, last).map((row) => row.lastToken);
      if (tokens.length > 0) sql.floorRaise.run(Math.max(...tokens));
    }
    const others = [sql.tombstonesEnded.all(now, BATCH), sql.operationsEnded.all(now, BATCH)];
    return {
      to: names.length < BATCH ? "" : (last ?? ""),
      more: others.some((removed) => removed.length === BATCH),
    };
  }

  committed({ to }: Swept): void {
    this.#sweptTo = to;
  }

  restart(): void {
    this.#sweptTo = "";
  }
}
