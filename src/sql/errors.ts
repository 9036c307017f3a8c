import { EngineRefusedError, HoldfastError } from "../core/errors.js";

type Code = string | number;

/** What the errors of one database mean, by their codes. */
export type ErrorRules = {
  readonly kind: string;
  /** The code of an error that the server sent; null for all others, such as a lost connection. */
  readonly codeOf: (cause: Error) => Code | null;
  /** The connection on which this error came is of no more use. */
  readonly endsConnection: (cause: Error) => boolean;
  /** Asking again will not help: what to do about it. */
  readonly refused: Readonly<Record<Code, string>>;
  /** What may pass while the program waits, a disk that is full or a fail-over: it is asked again, and this is said meanwhile. */
  readonly passing: Readonly<Record<Code, string>>;
  /** The server only reads. It may have been the primary until now, and a new connection may find the one that is. */
  readonly readOnly: readonly Code[];
  /** Serialisation failure, deadlock, a lock not had in time: nothing was done, and it is tried again. */
  readonly transient: readonly Code[];
  /** A function that may be replaced at this moment: tried again for a short while, and refused after that. */
  readonly replaced?: Code;
};

/** Half a second on average, for a function that is being replaced. */
const REPLACED_ATTEMPTS = 7;

/** Other columns than ours, or tables and functions where ours were to be made. */
export const FOREIGN = "There are tables of another program in this schema. Give the locks a schema of their own.";

/** Translates the errors of a client library. */
export class StoreErrors {
  readonly #rules: ErrorRules;

  constructor(rules: ErrorRules) {
    this.#rules = rules;
  }

  /** The server refused this statement, and the connection is as good as before. */
  isAnswer(cause: unknown): boolean {
    const { readOnly, endsConnection } = this.#rules;
    const code = this.#codeOf(cause);
    return code !== null && !readOnly.includes(code) && !endsConnection(cause as Error);
  }

  isTransient(cause: unknown, attempt: number): boolean {
    const { transient, replaced } = this.#rules;
    const code = this.#codeOf(cause);
    if (code === null) return false;
    return transient.includes(code) || (code === replaced && attempt <= REPLACED_ATTEMPTS);
  }

  hasCode(cause: unknown, codes: readonly Code[]): boolean {
    const code = this.#codeOf(cause);
    return code !== null && codes.includes(code);
  }

  /**
   * A refusal for good as `EngineRefusedError`; anything else (a lost connection, a server that shuts down or starts) as an
   * error that says "not known, ask again". Never the library's own object: it carries the values of the statement. While it
   * is opened, an engine on a server that only reads is refused too: then it is more likely the wrong server.
   */
  translated(cause: unknown, opening = false): Error {
    if (cause instanceof HoldfastError) return cause;
    const { kind, refused, passing, readOnly } = this.#rules;
    const plain = new Error(messageOf(cause));
    const code = this.#codeOf(cause);
    if (code === null) return plain;
    const [advice, meanwhile] = [refused[code], passing[code]];
    if (advice !== undefined) return new EngineRefusedError(kind, advice, plain);
    if (meanwhile === undefined) return plain;
    if (opening && readOnly.includes(code)) return new EngineRefusedError(kind, meanwhile, plain);
    return new Error(`${plain.message}. ${meanwhile}`);
  }

  #codeOf(cause: unknown): Code | null {
    return cause instanceof Error ? this.#rules.codeOf(cause) : null;
  }
}

/** A failed connection to several addresses has no message of its own. */
function messageOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  const { errors = [], code = cause.name } = cause as { errors?: readonly unknown[]; code?: string };
  const [first] = errors;
  return cause.message || (first instanceof Error ? first.message : code);
}
