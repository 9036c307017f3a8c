import { checkKnown, ID_ALLOWED, shown } from "../core/checks.js";
import { InvalidOptionError, StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import { checkDialect, quoted, type SqlDialect } from "./sql.js";
import { checkFenceOptions, checkToken, type FenceOptions, type FenceToken } from "./token.js";

/** How many rows a statement changed: `rowCount` of pg, `affectedRows` of mysql2, `changes` of SQLite. */
export type Changed = number | bigint | null | undefined;

export interface FenceColumnOptions extends FenceOptions {
  /** `fence` unless said otherwise: `bigint NOT NULL DEFAULT 0` in the row that is guarded. */
  readonly column?: string;
}

/** Parts of an `UPDATE` of yours. */
export type FenceColumn = {
  /** For `SET`: the fence rises to the floor. Alone it is what `raise` is for a column. */
  readonly set: string;
  /** For `WHERE`, behind an `AND`: only if the row has seen no newer floor. */
  readonly where: string;
  /** The two numbers, for whoever writes the parts with placeholders. */
  readonly token: number;
  readonly floor: number;
  /** Throws `StaleTokenError` unless that many rows (one, unless said otherwise) were changed. */
  readonly check: (changed: Changed, rows?: number) => void;
};

/**
 * The fence as a column of the very row that is written, checked by the writing statement itself: no further round trip.
 *
 * ```ts
 * const { set, where, check } = fenceColumn("postgres", "invoice 42", hold);
 * const { rowCount } = await tx.query(`UPDATE invoice SET total = $1, ${set} WHERE id = $2 AND ${where}`, [total, 42]);
 * check(rowCount);
 * ```
 *
 * The numbers stand in the text: they were checked to be whole numbers, and placeholders in somebody else's statement are
 * easily put in the wrong order.
 */
export function fenceColumn(
  dialect: SqlDialect,
  resource: string,
  given: FenceToken,
  options: FenceColumnOptions = {},
): FenceColumn {
  checkFenceOptions(options, ["column"]);
  const { column = "fence" } = options;
  const { token, floor, live } = checkToken(given, options);
  if (live !== undefined) {
    throw new InvalidOptionError(
      "token",
      "its hold lists all live tokens",
      'a hold without fence: "exact", or a fence table',
    );
  }
  const name = quotedColumn(dialect, column);
  return {
    set: `${name} = ${dialect === "sqlite" ? "MAX" : "GREATEST"}(${name}, ${floor})`,
    where: `${name} <= ${token}`,
    token,
    floor,
    check: checker(checkName(resource), token),
  };
}

export interface OwnerColumnOptions {
  /** `owner` unless said otherwise: text of 64 characters at least, compared as bytes (`varbinary(64)` in MySQL). */
  readonly column?: string;
}

/** Parts of two `UPDATE`s of yours: one that marks the row after the lock was taken, and those that write. */
export type OwnerColumn = {
  /** For `SET` in the first: this claim marks the row. */
  readonly set: string;
  /** For `WHERE`, behind an `AND`, in all others: only if the mark is still this claim's. */
  readonly where: string;
  readonly check: (changed: Changed, rows?: number) => void;
};

/**
 * For tokens that cannot be compared: the claim's id marks the row first, and each write compares it. Weaker than a token,
 * because ids have no order. It refuses a holder that was overtaken after it had marked the row. It does not refuse one that was
 * paused between taking the lock and marking: that one marks late, over the mark of the rightful holder, whose next
 * write is refused instead. Where there is a token, use `fenceColumn`.
 */
export function ownerColumn(
  dialect: SqlDialect,
  resource: string,
  hold: { readonly id: string; readonly token: number },
  options: OwnerColumnOptions = {},
): OwnerColumn {
  checkKnown(options, ["column"]);
  const { column = "owner" } = options;
  if (typeof hold?.id !== "string" || !ID_ALLOWED.test(hold.id)) {
    throw new InvalidOptionError("id", shown(hold?.id), "a claim's id: 22 to 64 of A-Z, a-z, 0-9, _ and -");
  }
  const { token } = checkToken(hold.token, { aheadMs: Infinity });
  const mark = `${quotedColumn(dialect, column)} = '${hold.id}'`;
  return { set: mark, where: mark, check: checker(checkName(resource), token) };
}

function quotedColumn(dialect: SqlDialect, column: string): string {
  if (typeof column !== "string" || column === "")
    throw new InvalidOptionError("column", shown(column), "a column's name");
  return quoted(checkDialect(dialect), column);
}

function checker(resource: string, token: number): FenceColumn["check"] {
  return (changed, rows = 1) => {
    if (typeof changed !== "number" && typeof changed !== "bigint") {
      throw new InvalidOptionError("changed", shown(changed), "the number of rows that the statement changed");
    }
    if (changed < rows) throw new StaleTokenError(resource, token);
  };
}
