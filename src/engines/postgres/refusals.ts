import { EngineRefusedError } from "../../core/errors.js";

/** By SQLSTATE: what PostgreSQL answers when asking again will not help, and what to do about it. */
const REFUSALS: Readonly<Record<string, string>> = {
  "28000": "Check the user, the database and pg_hba.conf.",
  "28P01": "Check the user and the password.",
  "3D000": "Create the database, or check its name in the URL.",
  "42501": "Give the user the rights listed in docs/engines/postgres.md.",
  "25006": "This server only reads: it is a replica, or set so. Connect to the primary.",
  "3F000": "The lock table is not there any more. Connect again to have it made.",
  "42P01": "The lock table is not there any more. Connect again to have it made.",
  "42883": "The lock table's functions are not there. Connect again to have them made, or update Holdfast.",
  "22021": "Use a database whose encoding is UTF8.",
  "22P05": "Use a database whose encoding is UTF8.",
  "53100": "The server's disk is full; free some space.",
};

/** Serialisation failure, deadlock, a lock not had in time: nothing was done, and it is tried again. */
const TRANSIENT = new Set(["40001", "40P01", "55P03"]);

type ServerError = Error & { readonly code: string; readonly severity?: string };

function isServerError(cause: unknown): cause is ServerError {
  if (!(cause instanceof Error) || !("code" in cause) || !("severity" in cause)) return false;
  return typeof cause.code === "string" && /^[0-9A-Z]{5}$/.test(cause.code);
}

/** The server refused this statement, and the connection is as good as before. */
export function isAnswer(cause: unknown): boolean {
  return isServerError(cause) && cause.severity !== "FATAL" && cause.severity !== "PANIC";
}

export function isTransient(cause: unknown): boolean {
  return isServerError(cause) && TRANSIENT.has(cause.code);
}

export function hasCode(cause: unknown, ...codes: readonly string[]): boolean {
  return isServerError(cause) && codes.includes(cause.code);
}

/**
 * A refusal for good as `EngineRefusedError`; anything else (a lost connection, a server that shuts down or starts) as an
 * error that says "not known, ask again". Never the library's own object: it carries the values of the statement.
 */
export function translated(cause: unknown): Error {
  if (cause instanceof EngineRefusedError) return cause;
  const plain = new Error(messageOf(cause));
  if (!isServerError(cause)) return plain;
  const advice = REFUSALS[cause.code];
  return advice === undefined ? plain : new EngineRefusedError("postgres", advice, plain);
}

/** A failed connection to several addresses has no message of its own. */
function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { errors = [] } = cause as { errors?: readonly unknown[] };
  const [first] = errors;
  return cause.message || (first instanceof Error ? first.message : cause.name);
}
