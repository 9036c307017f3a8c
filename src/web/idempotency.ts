import { checkCount, checkFunction, checkKnown, shown } from "../core/checks.js";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Locks } from "../locks.js";
import { Lock } from "../recipes/lock.js";
import { type Answer, isAnswer, problem, unavailable } from "./answer.js";
import type { AnswerStore, StoredAnswer } from "./answers.js";
import { digest, parseKey } from "./idempotency-key.js";
import type { RequestEnd } from "./request-end.js";
import { type RequestHold, RequestLock, TAKE, type TakeOptions, wasRefused } from "./request-lock.js";

export interface IdempotencyOptions<Request> extends TakeOptions {
  /** Where answers are kept: `memoryAnswers()` for one process, `cellAnswers(locks)` or a table of yours for several. */
  readonly answers: AnswerStore;
  /**
   * Whose key it is, such as the user's id: the same key of somebody else is another key. Without it, who guesses a key would be
   * told the answer of another user.
   */
  readonly scope: (request: Request) => string | Promise<string>;
  /** `true`: a request without a key is answered with 400. Otherwise it is handled as if this were not there. */
  readonly required?: boolean;
  /** What must be equal in a request that comes again: method, path and body, unless said otherwise. */
  readonly fingerprint?: (request: Request) => string | Uint8Array | Promise<string | Uint8Array>;
  /** Whether an answer is kept, by its status: below 500 unless said otherwise. What is not kept is done again. */
  readonly keeps?: (status: number) => boolean;
}

/** What the middleware of a framework tells of a request. */
export type RequestFacts = {
  readonly method: string;
  /** Path and query. */
  readonly path: string;
  /** The `Idempotency-Key` header. */
  readonly key: string | undefined;
  body(): string | Uint8Array | Promise<string | Uint8Array>;
};

/** A request that is the first with its key. */
export type FirstRequest = {
  readonly held: RequestHold;
  /** A longer body is not kept. */
  readonly maxBytes: number;
  /** Called with the whole answer before it is sent; `body` null: longer than `maxBytes`. What to send in its place, or null. */
  readonly finish: (answer: Omit<Answer, "body"> & { readonly body: Uint8Array | null }) => Promise<Answer | null>;
  /** There will be no answer. */
  readonly abandon: () => void;
};

/** A handler that has not answered by then loses the lock, unless `maxHoldMs` says otherwise. */
const MAX_HOLD_MS = 300_000;

/** They change nothing, so there is nothing to be done only once. */
const SAFE = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

/** Of the connection or of the moment, and cookies: a session is not given out again. */
const NOT_KEPT = new Set([
  "connection",
  "content-length",
  "date",
  "keep-alive",
  "proxy-authenticate",
  "proxy-connection",
  "set-cookie",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);

const OWN = ["answers", "scope", "required", "fingerprint", "keeps"] as const;

/** `Idempotency-Key`: the first request with a key is handled, one that comes again gets the same answer. */
export class Idempotency<Request extends object> {
  readonly #locks: Locks;
  readonly #options: IdempotencyOptions<Request>;
  readonly #lock: RequestLock<{ readonly key: string }>;

  constructor(locks: Locks, options: IdempotencyOptions<Request>) {
    checkKnown(options, [...OWN, ...TAKE]);
    const { answers, scope, required = false, fingerprint, keeps, ...take } = options;
    if (typeof answers?.get !== "function" || typeof answers.put !== "function") {
      throw new InvalidOptionError(
        "answers",
        "it keeps no answers",
        "memoryAnswers(), cellAnswers(locks), or your own",
      );
    }
    checkCount("answers.maxBytes", answers.maxBytes, 0, Number.MAX_SAFE_INTEGER);
    checkFunction("scope", scope);
    if (typeof required !== "boolean") throw new InvalidOptionError("required", shown(required), "true or false");
    for (const [name, value] of Object.entries({ fingerprint, keeps })) {
      if (value !== undefined) checkFunction(name, value);
    }
    this.#locks = locks;
    this.#options = options;
    // A client that gives up and sends the request again is the very case: the lock lasts until there is an answer, and so does the work.
    const lock = { maxHoldMs: MAX_HOLD_MS, ...take, name: ({ key }: { readonly key: string }) => `idempotency:${key}` };
    this.#lock = new RequestLock(locks, lock, true);
  }

  /** The first request with its key; or what to answer; `"pass"`: not concerned; null: nobody is there to be answered. */
  async begin(request: Request, facts: RequestFacts, end: RequestEnd): Promise<FirstRequest | Answer | "pass" | null> {
    const { answers, scope, required, fingerprint } = this.#options;
    if (SAFE.has(facts.method)) return "pass";
    if (facts.key === undefined) {
      return required === true ? problem("missing-key", 400, "Send an Idempotency-Key header.") : "pass";
    }
    const named = parseKey(facts.key);
    if (named === undefined) {
      return problem(
        "invalid-key",
        400,
        "An Idempotency-Key is 1 to 255 printable ASCII characters, in quotes or bare.",
      );
    }
    const key = digest(checkScope(await scope(request)), named);
    const body = await (fingerprint === undefined ? facts.body() : fingerprint(request));
    const print = digest(facts.method, facts.path, checkPrint(body));
    const held = await this.#lock.take({ key }, end, request);
    if (held === null || isAnswer(held)) return held;
    let known: StoredAnswer | undefined;
    try {
      known = await answers.get(key);
    } catch (error) {
      held.over();
      const answer = unavailable(error, this.#lock.retryAfterSeconds);
      if (answer === undefined) throw error;
      return answer;
    }
    if (known !== undefined) {
      held.over();
      return again(known, print);
    }
    const { maxBytes } = answers;
    const keep = async (answer: StoredAnswer): Promise<Answer | null> =>
      // What a lock further in refused was not done, and is to be asked for again.
      wasRefused(request) ? null : this.#keep(key, answer);
    let finished = false;
    const over = (): void => {
      if (!finished) held.over();
      finished = true;
    };
    return {
      held,
      maxBytes,
      async finish({ status, headers, body }) {
        const kept = headers.filter(([name]) => !NOT_KEPT.has(name.toLowerCase()));
        const bytes = kept.reduce((sum, [name, value]) => sum + name.length + value.length, body?.length ?? Infinity);
        const fits = bytes <= maxBytes ? { headers: kept, body } : { headers: [], body: null };
        try {
          return await keep({ status, ...fits, fingerprint: print, token: held.token });
        } finally {
          over();
        }
      },
      abandon: over,
    };
  }

  async #keep(key: string, answer: StoredAnswer): Promise<Answer | null> {
    const { answers, keeps = (status: number) => status < 500 } = this.#options;
    try {
      if (!keeps(answer.status) || (await answers.put(key, answer))) return null;
    } catch (cause) {
      // It was done, and the client is told so: an error would make it ask again, and it would be done twice.
      const message = "An answer could not be kept: the same Idempotency-Key, sent again, is handled again";
      Lock.clientOf(this.#locks.mutex("idempotency")).events.emit("warning", () => ({ message, cause }));
      return null;
    }
    const detail = "The lock was lost meanwhile, and a later request with this key was answered. Send it again.";
    return problem("superseded", 409, detail, this.#lock.retryAfterSeconds);
  }
}

/** Nobody's key would be everybody's. */
function checkScope(scope: unknown): string {
  if (typeof scope === "string") return scope;
  throw new InvalidOptionError(
    "scope",
    `it answered ${shown(scope)}`,
    "a function that says whose key it is, in a string",
  );
}

function checkPrint(print: unknown): string | Uint8Array {
  if (typeof print === "string" || print instanceof Uint8Array) return print;
  throw new InvalidOptionError(
    "fingerprint",
    `it answered ${shown(print)}`,
    "a function that answers a string or bytes",
  );
}

function again({ fingerprint, status, headers, body }: StoredAnswer, print: string): Answer {
  if (fingerprint !== print) {
    return problem("key-reused", 422, "This Idempotency-Key came with another request before. Use a new key.");
  }
  if (body === null) {
    return problem("answer-not-kept", 409, `It was carried out, with status ${status}; its answer was not kept.`);
  }
  return { status, headers: [...headers, ["Idempotency-Replayed", "true"]], body };
}

/** The bytes of a body that a framework has read and parsed. */
export function bytesOf(body: unknown, hasBody: boolean): string | Uint8Array {
  if (typeof body === "string" || body instanceof Uint8Array) return body;
  const parsed = typeof body === "object" && body !== null && !("pipe" in body);
  if (body === null || parsed || typeof body === "number" || typeof body === "boolean") return JSON.stringify(body);
  if (!hasBody && body === undefined) return "";
  throw new MisuseError(
    "The body of this request has not been read, so an Idempotency-Key cannot be compared with it. Put the body parser before " +
      "withIdempotencyKey, or give fingerprint.",
  );
}

/** Whether a request brings a body. */
export function bringsBody(headers: Readonly<Record<string, string | string[] | undefined>>): boolean {
  return headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
}
