import { checkCount } from "../core/checks.js";
import {
  ClosedError,
  DrainingError,
  EngineUnavailableError,
  InvalidNameError,
  TooManyClaimsError,
  TooManyWaitersError,
} from "../core/errors.js";

/** What a client is sent, whatever the framework. */
export type Answer = {
  readonly status: number;
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: Uint8Array;
};

export const isAnswer = (value: object): value is Answer => "status" in value;

/** Of the problem documents (RFC 9457) that are answered in place of the handler: `urn:holdfast:` stands before it. */
type ProblemKind =
  | "answer-not-kept"
  | "busy"
  | "invalid-key"
  | "invalid-name"
  | "key-reused"
  | "missing-key"
  | "superseded"
  | "too-many-waiting"
  | "unavailable";

const TITLES: Record<ProblemKind, string> = {
  "answer-not-kept": "Carried out before, answer not kept",
  busy: "Locked by another request",
  "invalid-key": "Invalid Idempotency-Key",
  "invalid-name": "Invalid lock name",
  "key-reused": "Idempotency-Key used for another request",
  "missing-key": "Idempotency-Key required",
  superseded: "Another request took over",
  "too-many-waiting": "Too many requests wait",
  unavailable: "Lock store unavailable",
};

/** Neither names nor holders stand in it: they are nobody's business outside. */
export function problem(kind: ProblemKind, status: number, detail: string, retryAfterSeconds?: number): Answer {
  const text = JSON.stringify({ type: `urn:holdfast:${kind}`, title: TITLES[kind], status, detail });
  const headers: [string, string][] = [["Content-Type", "application/problem+json"]];
  if (retryAfterSeconds !== undefined) headers.push(["Retry-After", String(retryAfterSeconds)]);
  return { status, headers, body: Buffer.from(text) };
}

/** The lock's name comes out of the request: one that no lock can have is the client's fault. Any other error is not. */
export function badName(error: unknown): Answer | undefined {
  if (error instanceof InvalidNameError) return problem("invalid-name", 400, error.message);
  if (error instanceof URIError) return problem("invalid-name", 400, "Its percent-encoding is malformed.");
  return undefined;
}

/** Too many wait, the store is away, or this server is about to leave: another try may do. What happened is told by the locks' events. */
export function unavailable(error: unknown, retryAfterSeconds: number): Answer | undefined {
  if (error instanceof TooManyWaitersError || error instanceof TooManyClaimsError) return tooMany(retryAfterSeconds);
  const passing = [EngineUnavailableError, ClosedError, DrainingError].some((kind) => error instanceof kind);
  if (!passing) return undefined;
  return problem("unavailable", 503, "The lock could not be asked for. Nothing was done.", retryAfterSeconds);
}

export const tooMany = (retryAfterSeconds: number): Answer =>
  problem("too-many-waiting", 503, "Too many requests wait for locks here. Ask later.", retryAfterSeconds);

export const checkRetryAfter = (seconds: number): number => checkCount("retryAfterSeconds", seconds, 1, 86_400);
