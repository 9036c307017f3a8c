import type { Unlisten } from "./unlisten.js";

/** Small versioned values beside the claims: what latch, barrier and counter are made of. */
export interface Cells {
  read(name: string): Promise<Cell>;
  /** A write with a known operation id answers as it did the first time, for at least `TOMBSTONE_MS`. */
  write(write: CellWrite): Promise<CellAnswer>;
  /** Called with the cell after each change seen; several changes may be told as one. */
  watch(name: string, listener: (cell: Cell) => void): Unlisten;
}

/** Absent: version 0 and value null. Versions of a name only grow, also over a removal. */
export type Cell = { readonly version: number; readonly value: string | null };

/** Takes effect when the cell's version is `expected`; writing null removes the cell. */
export type CellWrite = {
  readonly name: string;
  readonly operation: string;
  readonly expected: number;
  readonly value: string | null;
};

/** `written`: the cell as this operation left it. `conflict`: the cell that stood in the way. */
export type CellAnswer = { readonly kind: "written" | "conflict"; readonly cell: Cell };
