import { EngineRefusedError } from "../../core/errors.js";

/** By SQLSTATE: what PostgreSQL answers when asking again will not help, and what to do about it. */
const REFUSALS: Readonly<Record<string, string>> = {
  "28000": "Check the user, the database and pg_hba.conf.",
  "28P01": "Check the user and the password.",
  "3D000": "Create the database, or check its name in the URL.",
  "42501": "Give the user the rights listed in docs/engines/postgres.md.",
  "3F000": "The lock table is not there any more. Connect again to have it made.",
  "42P01": "The lock table is not there any more. Connect again to have it made.",
  "42883": "The lock table's functions are not there. Connect again to have them made, or update Holdfast.",
  "22021": "Use a database whose encoding is UTF8.",
  "22P05": "Use a database whose encoding is UTF8.",
};

/** What may pass while the program waits, a disk that is full or a fail-over: it is asked again, and this is said meanwhile. */
const PASSING: Readonly<Record<string, string>> = {
  "25006":
    "This server only reads: it is a replica, or default_transaction_read_only is set for this user. Connect to the primary.",
  "53100": "The server's disk is full; free some space.",
  "53300": "The server has no connection left; raise max_connections, or the user's limit.",
};

const READ_ONLY = "25006";

/** Serialisation failure, deadlock, a lock not had in time: nothing was done, and it is tried again. */
const TRANSIENT = new Set(["40001", "40P01", "55P03"]);

type ServerError = Error & { readonly code: string; readonly severity?: string };

function isServerError(cause: unknown): cause is ServerError {
  if (!(cause instanceof Error) || !("code" in cause) || !("severity" in cause)) return false;
  return typeof cause.code === "string" && /^[0-9A-Z]{5}$/.test(cause.code);
}

/**
 * The server refused this statement, and the connection is as good as before. One to a server that only reads is not: it may
 * have been the primary until now, and a new connection may find the one that is.
 */
export function isAnswer(cause: unknown): boolean {
  if (!isServerError(cause) || cause.code === READ_ONLY) return false;
  return cause.severity !== "FATAL" && cause.severity !== "PANIC";
}

export function isTransient(cause: unknown): boolean {
  return isServerError(cause) && TRANSIENT.has(cause.code);
}

export function hasCode(cause: unknown, ...codes: readonly string[]): boolean {
  return isServerError(cause) && codes.includes(cause.code);
}

/**
 * A refusal for good as `EngineRefusedError`; anything else (a lost connection, a server that shuts down or starts) as an
 * error that says "not known, ask again". Never the library's own object: it carries the values of the statement. While it is
 * opened, an engine on a server that only reads is refused too: then it is more likely the wrong server.
 */
export function translated(cause: unknown, opening = false): Error {
  if (cause instanceof EngineRefusedError) return cause;
  const plain = new Error(messageOf(cause));
  if (!isServerError(cause)) return plain;
  const [advice, passing] = [REFUSALS[cause.code], PASSING[cause.code]];
  if (advice !== undefined) return new EngineRefusedError("postgres", advice, plain);
  if (passing === undefined) return plain;
  if (opening && cause.code === READ_ONLY) return new EngineRefusedError("postgres", passing, plain);
  return new Error(`${plain.message}. ${passing}`);
}

/** A failed connection to several addresses has no message of its own. */
function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { errors = [] } = cause as { errors?: readonly unknown[] };
  const [first] = errors;
  return cause.message || (first instanceof Error ? first.message : cause.name);
}
