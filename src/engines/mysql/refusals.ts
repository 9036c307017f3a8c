import { EngineRefusedError } from "../../core/errors.js";

const RIGHTS = "Give the user the rights listed in docs/engines/mysql.md.";
const READ_ONLY = "This server only reads: it is a replica, or set so. Connect to the primary.";
const MISSING = "The lock table is not there any more. Connect again to have it made.";

/** By error number: what the server answers when asking again will not help, and what to do about it. */
const REFUSALS: Readonly<Record<number, string>> = {
  1044: RIGHTS,
  1142: RIGHTS,
  1143: RIGHTS,
  1227: RIGHTS,
  1370: RIGHTS,
  1045: "Check the user and the password.",
  1698: "Check the user and the password.",
  1049: "Create the database, or check its name in the URL.",
  1290: READ_ONLY,
  1792: READ_ONLY,
  1836: READ_ONLY,
  1146: MISSING,
  1305: MISSING,
  1318: "The lock table's procedures are of another version. Update Holdfast here.",
  1021: "The server's disk is full; free some space.",
  1114: "The server's disk is full; free some space.",
  1665: "Set binlog_format to ROW or MIXED.",
};

/** Deadlock, a lock not had in time, a row that changed: nothing was done, and it is tried again. */
const TRANSIENT = new Set([1020, 1205, 1213, 1614]);

type ServerError = Error & { readonly errno: number; readonly sqlState: string; readonly fatal?: boolean };

function isServerError(cause: unknown): cause is ServerError {
  return cause instanceof Error && "sqlState" in cause && "errno" in cause && typeof cause.errno === "number";
}

/** The server refused this statement, and the connection is as good as before. */
export function isAnswer(cause: unknown): boolean {
  return isServerError(cause) && cause.fatal !== true;
}

export function isTransient(cause: unknown): boolean {
  return isServerError(cause) && TRANSIENT.has(cause.errno);
}

export function hasNumber(cause: unknown, ...numbers: readonly number[]): boolean {
  return isServerError(cause) && numbers.includes(cause.errno);
}

/** A refusal for good as `EngineRefusedError`; anything else as an error that says "not known, ask again". Never the library's
 * own object: it carries the whole statement. */
export function translated(cause: unknown): Error {
  if (cause instanceof EngineRefusedError) return cause;
  const plain = new Error(messageOf(cause));
  const advice = isServerError(cause) ? REFUSALS[cause.errno] : undefined;
  return advice === undefined ? plain : new EngineRefusedError("mysql", advice, plain);
}

function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { errors = [], code = cause.name } = cause as { errors?: readonly unknown[]; code?: string };
  const [first] = errors;
  return cause.message || (first instanceof Error ? first.message : code);
}
