/** `holdfast/express`: middleware for Express 4 and 5, and for whatever else has `(request, response, next)` on node:http. */
import { runHolding } from "../core/context.js";
import type { Locks } from "../locks.js";
import { isAnswer } from "./answer.js";
import { bringsBody, bytesOf, Idempotency, type IdempotencyOptions } from "./idempotency.js";
import { holdBack, sendAnswer, type WritableResponse } from "./node-response.js";
import { endOfNode, type NodeRequest } from "./request-end.js";
import { type LockRequestOptions, RequestLock } from "./request-lock.js";

export * from "./exports.js";
export type { WritableResponse } from "./node-response.js";
export type { NodeRequest, NodeResponse } from "./request-end.js";

/** What the options know of a request that they do not describe: `(request: express.Request) => …` knows all of it. */
export interface ExpressRequest extends NodeRequest {
  // oxlint-disable-next-line no-explicit-any -- a text, or of a wildcard several; their names are in the path.
  readonly params: Readonly<Record<string, any>>;
  readonly query: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly ip?: string | undefined;
  readonly path: string;
  readonly originalUrl: string;
}

export type Middleware<Request> = (
  request: Request,
  response: WritableResponse,
  next: (error?: unknown) => void,
) => void;

/** Holds a lock while a request is handled: until its response has been sent, or its client has gone. */
export function withLock<Request extends NodeRequest = ExpressRequest>(
  locks: Locks,
  options: LockRequestOptions<Request>,
): Middleware<Request> {
  const lock = new RequestLock<Request>(locks, options);
  return (request, response, next) => {
    lock.take(request, endOfNode(request, response)).then((held) => {
      if (held === null) return;
      if (isAnswer(held)) sendAnswer(response, held);
      else runHolding([held.hold], () => next());
    }, next);
  };
}

/** Handles the first request with an `Idempotency-Key`, and answers others with the same key as that one was. Stands behind the body parser. */
export function withIdempotencyKey<Request extends NodeRequest = ExpressRequest>(
  locks: Locks,
  options: IdempotencyOptions<Request>,
): Middleware<Request> {
  const idempotency = new Idempotency<Request>(locks, options);
  return (request, response, next) => {
    const { method = "", url = "", originalUrl = url } = request as NodeRequest & { originalUrl?: string };
    const facts = {
      method,
      path: originalUrl,
      key: request.headers["idempotency-key"]?.toString(),
      body: () => bytesOf(parsedBody(request), bringsBody(request.headers)),
    };
    idempotency.begin(request, facts, endOfNode(request, response)).then((begun) => {
      if (begun === null) return;
      if (begun === "pass") next();
      else if (isAnswer(begun)) sendAnswer(response, begun);
      else {
        holdBack(response, begun);
        runHolding([begun.held.hold], () => next());
      }
    }, next);
  };
}

/** The parsers of Express 4 leave an empty object where they parsed nothing. */
function parsedBody(request: NodeRequest): unknown {
  const { body, _body: isParsed } = request as { readonly body?: unknown; readonly _body?: boolean };
  const isEmpty = typeof body === "object" && body !== null && Object.keys(body).length === 0;
  return isEmpty && isParsed !== true ? undefined : body;
}
