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
  1146: MISSING,
  1305: MISSING,
  1318: "The lock table's procedures are of another version. Update Holdfast here.",
  1665: "Set binlog_format to ROW or MIXED.",
};

/** What may pass while the program waits, a disk that is full or a fail-over: it is asked again, and this is said meanwhile. */
const PASSING: Readonly<Record<number, string>> = {
  1290: READ_ONLY,
  1792: READ_ONLY,
  1836: READ_ONLY,
  1021: "The server's disk is full; free some space.",
  1114: "The server's disk is full; free some space.",
  1040: "The server has no connection left; raise max_connections.",
  1203: "The user has no connection left; raise max_user_connections.",
  1226: "The user has no connection left; raise max_user_connections.",
};

/** Not 1792: that is the connection's setting, which the procedures do without. */
const READ_ONLY_NUMBERS = new Set([1290, 1836]);

/** In an XA transaction that somebody left open on this connection: nothing can be done there, or be committed. */
const IN_XA = 1399;

/** The statement under way was ended: by a KILL QUERY, or by a limit of time (of MariaDB, of MySQL). */
export const INTERRUPTED: readonly number[] = [1317, 1969, 3024];

/**
 * Something is left open. A procedure that is interrupted between two of its statements ends without its handler, with its
 * transaction open: its rows would stay locked for as long as the connection rests in the pool, and the next call on it
 * would commit one half. Without the connection all of it is undone.
 */
const LEFT_OPEN = new Set([IN_XA, ...INTERRUPTED]);

/** A procedure that is not there: on MySQL it is made anew by a drop and a create, and a call may come in between. */
const MISSING_PROCEDURE = 1305;

/** Deadlock, a lock not had in time, a row that changed: nothing was done, and it is tried again. */
const TRANSIENT = new Set([1020, 1205, 1213, 1614]);

type ServerError = Error & { readonly errno: number; readonly sqlState: string; readonly fatal?: boolean };

function isServerError(cause: unknown): cause is ServerError {
  return cause instanceof Error && "sqlState" in cause && "errno" in cause && typeof cause.errno === "number";
}

/**
 * The server refused this statement, and the connection is as good as before. One to a server that only reads is not: it may
 * have been the primary until now, and a new connection may find the one that is. Nor is one with something left open.
 */
export function isAnswer(cause: unknown): boolean {
  if (!isServerError(cause) || LEFT_OPEN.has(cause.errno)) return false;
  return cause.fatal !== true && !READ_ONLY_NUMBERS.has(cause.errno);
}

export function isTransient(cause: unknown): boolean {
  return isServerError(cause) && TRANSIENT.has(cause.errno);
}

/** Asked again for a short while, and refused after that. */
export function isMissing(cause: unknown): boolean {
  return hasNumber(cause, MISSING_PROCEDURE);
}

export function hasNumber(cause: unknown, ...numbers: readonly number[]): boolean {
  return isServerError(cause) && numbers.includes(cause.errno);
}

/**
 * A refusal for good as `EngineRefusedError`; anything else as an error that says "not known, ask again". Never the library's
 * own object: it carries the whole statement. While it is opened, an engine on a server that only reads is refused too.
 */
export function translated(cause: unknown, opening = false): Error {
  if (cause instanceof EngineRefusedError) return cause;
  const plain = new Error(messageOf(cause));
  if (!isServerError(cause)) return plain;
  const [advice, passing] = [REFUSALS[cause.errno], PASSING[cause.errno]];
  if (advice !== undefined) return new EngineRefusedError("mysql", advice, plain);
  if (passing === undefined) return plain;
  if (opening && READ_ONLY_NUMBERS.has(cause.errno)) return new EngineRefusedError("mysql", passing, plain);
  return new Error(`${plain.message}. ${passing}`);
}

function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { errors = [], code = cause.name } = cause as { errors?: readonly unknown[]; code?: string };
  const [first] = errors;
  return cause.message || (first instanceof Error ? first.message : code);
}
