// Beside the usual files: rows of the tables as a transaction works on them.
import type { Owner } from "../../core/inspect.js";
import type { Scripts } from "./scripts.generated.js";

/** A claim's row: it holds or waits. */
export type ClaimRow = Scripts["claimGet"]["out"];

export type HolderRow = Scripts["holdersFront"]["out"];
type LastRow = Scripts["claimLast"]["out"];

/** A claim that has been the only one of its name since it was made is kept in the name's row. */
export type SoleClaim = ClaimRow & {
  spanMs: number;
  readonly owner: Owner;
  readonly data: string | null;
  readonly since?: number;
};

/** A name while a transaction works on it; written back once, at the end. */
export type NameRow = {
  readonly name: string;
  capacity: number;
  taken: number;
  holders: number;
  waiters: number;
  lastToken: number;
  /** No holder's lease ends before this. */
  soonestEnd: number;
  /** The first waiter, and a time before which its lease does not end. */
  frontToken: number;
  frontEnd: number;
  /** The only claim, when it has no row of its own. */
  sole: SoleClaim | null;
  dirty: boolean;
  /** A claim has left, and nobody was let in yet. */
  left: boolean;
  /** Claims that their client has let go on already. */
  known: Set<string> | null;
  /** The processes ahead of a new claim were checked. */
  checked: boolean;
  /** What this transaction has read, while it is true: the first holder, and the claim behind which a new one will stand. */
  firstHolder: HolderRow | undefined;
  last: LastRow | undefined;
};

/** The token floor is for a name that was forgotten; one with a row goes on from its own newest token. */
export function nameRowOf(name: string, row: Scripts["load"]["out"], sole: SoleClaim | null): NameRow {
  return {
    name,
    capacity: row.capacity ?? 0,
    taken: row.taken ?? 0,
    holders: row.holders ?? 0,
    waiters: row.waiters ?? 0,
    lastToken: row.lastToken ?? row.tokenFloor,
    soonestEnd: row.soonestEnd ?? Infinity,
    frontToken: row.frontToken ?? 0,
    frontEnd: row.frontEnd ?? Infinity,
    sole,
    dirty: false,
    left: false,
    known: null,
    checked: false,
    firstHolder: undefined,
    last: undefined,
  };
}

export function isIdle(name: NameRow): boolean {
  return name.holders + name.waiters === 0;
}

export function fits(name: NameRow, units: number): boolean {
  return name.taken + units <= name.capacity;
}

/** A claim is not counted any more. */
export function countRemoved(name: NameRow, { holds, units }: Pick<ClaimRow, "holds" | "units">): void {
  name.dirty = true;
  name.firstHolder = undefined;
  name.last = undefined;
  if (holds === 0) {
    name.waiters -= 1;
  } else {
    name.holders -= 1;
    name.taken -= units;
  }
}
