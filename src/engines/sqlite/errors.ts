import { EngineRefusedError, EngineUnavailableError } from "../../core/errors.js";

/** How SQLite failed, by the primary code of its error; null for errors that are not SQLite's. */
export type Failure =
  /** Another connection is writing, recovering or switching modes: ask again. */
  "busy" | "readonly" | "cannot open" | "full" | "corrupt" | "not a database" | "other" | null;

const BY_NAME: readonly (readonly [string, Failure])[] = [
  ["SQLITE_BUSY", "busy"],
  ["SQLITE_LOCKED", "busy"],
  ["SQLITE_PROTOCOL", "busy"],
  ["SQLITE_READONLY", "readonly"],
  ["SQLITE_PERM", "readonly"],
  ["SQLITE_CANTOPEN", "cannot open"],
  ["SQLITE_FULL", "full"],
  ["SQLITE_CORRUPT", "corrupt"],
  ["SQLITE_NOTADB", "not a database"],
  ["SQLITE_", "other"],
];

const BY_NUMBER: Readonly<Record<number, Failure>> = {
  3: "readonly",
  5: "busy",
  6: "busy",
  8: "readonly",
  11: "corrupt",
  13: "full",
  14: "cannot open",
  15: "busy",
  26: "not a database",
};

/** The libraries disagree on where the code stands: `code` as a name, or `errcode` and `rawCode` as a number. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Error)) return null;
  const { code, errcode, rawCode } = error as { code?: unknown; errcode?: unknown; rawCode?: unknown };
  const number = typeof errcode === "number" ? errcode : rawCode;
  // The lower eight bits are the primary code, the rest says more (SQLITE_BUSY_RECOVERY, SQLITE_READONLY_DBMOVED).
  if (typeof number === "number" && number > 0) return BY_NUMBER[number & 0xff] ?? "other";
  if (typeof code !== "string") return null;
  return BY_NAME.find(([prefix]) => code.startsWith(prefix))?.[1] ?? null;
}

/** What failed for all that share a transaction, told to one of them. What is not SQLite's (a database that was closed) is not theirs to share either. */
export function translateShared(path: string, doing: string, error: unknown): unknown {
  const told = translate(path, doing, error);
  return told === error ? new EngineUnavailableError("sqlite", doing, error) : told;
}

/** An error of a statement, as the core knows it. */
export function translate(path: string, doing: string, error: unknown): unknown {
  const refused = refusalOf(path, error);
  if (refused !== undefined) return refused;
  const failure = failureOf(error);
  if (failure === null) return error;
  // Not refused for good: space can be freed, and a release must be sent again.
  const text = `${path}: ${(error as Error).message}; free some space`;
  const cause = failure === "full" ? new Error(text, { cause: error }) : error;
  return new EngineUnavailableError("sqlite", doing, cause);
}

export function busyTooLong(path: string, doing: string, limitMs: number, cause: unknown): EngineUnavailableError {
  const text = `others have been writing to ${path} for ${limitMs} ms; perhaps one of them is stopped`;
  return new EngineUnavailableError("sqlite", doing, new Error(text, { cause }));
}

const ADVICE = {
  readonly: "Every program that takes locks has to write: check the rights of the file and of its folder.",
  "cannot open": "Check that its folder exists and that this user may write there.",
  corrupt:
    "Stop the programs that use it, then delete it together with its -wal and -shm: it holds nothing but current locks.",
  "not a database": "It was left as it is. Choose another path for the locks.",
};

/** For errors that a retry cannot mend; undefined for others. */
function refusalOf(path: string, error: unknown): EngineRefusedError | undefined {
  if (error instanceof FileReplaced) {
    const advice = "Locks taken in it count no more. Restart the programs that use it.";
    return new EngineRefusedError("sqlite", advice, error);
  }
  const failure = failureOf(error);
  if (failure === null || failure === "busy" || failure === "full" || failure === "other") return undefined;
  const text = error instanceof Error ? error.message : String(error);
  return new EngineRefusedError("sqlite", ADVICE[failure], new Error(`${path}: ${text}`, { cause: error }));
}

/** The library could not open the file; some of them do not say why. */
export function notOpened(path: string, error: unknown): EngineRefusedError {
  const text = error instanceof Error ? error.message : String(error);
  const cause = new Error(`${path}: ${text}`, { cause: error });
  return refusalOf(path, error) ?? new EngineRefusedError("sqlite", ADVICE["cannot open"], cause);
}

/** The path does not lead any more to the file that is open. Each request is told by an error of its own, with this cause. */
export class FileReplaced extends Error {
  constructor(path: string) {
    super(`${path} was deleted or replaced while it was in use`);
  }
}

export function otherMachine(): EngineRefusedError {
  const cause = new Error("another machine, virtual machine or time namespace has opened this file since we did");
  const advice = "Their clocks cannot be compared. Give each machine a file of its own, or use a store with a server.";
  return new EngineRefusedError("sqlite", advice, cause);
}
