/** `holdfast/hono`: middleware for Hono, on Node.js and on what else speaks `Request` and `Response`. */
import type { Context, MiddlewareHandler } from "hono";
import { runHolding } from "../core/context.js";
import type { Locks } from "../locks.js";
import { type Answer, isAnswer } from "./answer.js";
import { collect } from "./collect.js";
import { Idempotency, type IdempotencyOptions, type RequestFacts } from "./idempotency.js";
import { endOfNode, type NodeRequest, type NodeResponse, RequestEnd } from "./request-end.js";
import { type LockRequestOptions, RequestLock } from "./request-lock.js";

export * from "./exports.js";

/** Holds a lock while a request is handled: until its response has been sent, or its client has gone. */
export function withLock(locks: Locks, options: LockRequestOptions<Context>): MiddlewareHandler {
  const lock = new RequestLock<Context>(locks, options);
  return async (context, next) => {
    const { end, endsWith } = endOf(context);
    const held = await lock.take(context, end);
    if (held === null) return GONE();
    if (isAnswer(held)) return responseOf(held);
    try {
      await runHolding([held.hold], next);
    } catch (error) {
      end.end(true);
      throw error;
    }
    replace(context, endsWith);
    return undefined;
  };
}

/** Handles the first request with an `Idempotency-Key`, and answers others with the same key as that one was. */
export function withIdempotencyKey(locks: Locks, options: IdempotencyOptions<Context>): MiddlewareHandler {
  const idempotency = new Idempotency<Context>(locks, options);
  return async (context, next) => {
    const begun = await idempotency.begin(context, factsOf(context), endOf(context).end);
    if (begun === null) return GONE();
    if (begun === "pass") {
      await next();
      return undefined;
    }
    if (isAnswer(begun)) return responseOf(begun);
    try {
      await runHolding([begun.held.hold], next);
      const { status, headers, body } = context.res;
      const { whole, stream } = await collect(body ?? new Blob([]).stream(), begun.maxBytes);
      const instead = await begun.finish({ status, headers: [...headers], body: whole });
      replace(context, () => {
        if (instead !== null) return responseOf(instead);
        const sent = whole === null ? streamOf(stream) : whole;
        return new Response(body === null ? null : sent, { status, headers });
      });
    } catch (error) {
      begun.abandon();
      throw error;
    }
    return undefined;
  };
}

/** Nobody reads it: the client has gone. */
const GONE = (): Response => new Response(null, { status: 408 });

function factsOf({ req }: Context): RequestFacts {
  const { raw } = req;
  const { pathname, search } = new URL(raw.url);
  return {
    method: raw.method,
    path: pathname + search,
    key: raw.headers.get("idempotency-key") ?? undefined,
    // Hono's own way to read it: handlers behind find the body still there.
    body: async () => new Uint8Array(await req.arrayBuffer()),
  };
}

type Ending = { readonly end: RequestEnd; readonly endsWith: (response: Response) => Response };

/** On Node.js the response below tells the end; elsewhere it is the end of the body, or the request's signal. */
function endOf({ env, req }: Context): Ending {
  const { incoming, outgoing } = (env ?? {}) as { incoming?: NodeRequest; outgoing?: NodeResponse };
  if (typeof incoming?.socket?.once === "function" && typeof outgoing?.once === "function") {
    return { end: endOfNode(incoming, outgoing), endsWith: (response) => response };
  }
  const end = new RequestEnd();
  const { signal } = req.raw;
  if (signal.aborted) end.end(false);
  else signal.addEventListener("abort", () => end.end(false), { once: true });
  return { end, endsWith: (response) => endingWith(response, end) };
}

/** Hono copies the headers of a response that is replaced onto the new one, unless there is none meanwhile. */
function replace(context: Context, change: (response: Response) => Response): void {
  const response = change(context.res);
  if (response === context.res) return;
  (context as { res: Response | undefined }).res = undefined;
  context.res = response;
}

/** The same response; when its body has been read, or nobody wants the rest of it, the request is over. */
function endingWith(response: Response, end: RequestEnd): Response {
  if (response.body === null) {
    end.end(true);
    return response;
  }
  const { status, statusText, headers } = response;
  return new Response(streamOf(response.body, end), { status, statusText, headers });
}

function streamOf(body: AsyncIterable<Uint8Array>, end?: RequestEnd): ReadableStream<Uint8Array> {
  const pieces = body[Symbol.asyncIterator]();
  return new ReadableStream(
    {
      async pull(controller) {
        try {
          const { done, value } = await pieces.next();
          if (done !== true) return controller.enqueue(value);
          end?.end(true);
          controller.close();
        } catch (error) {
          end?.end(true);
          throw error;
        }
      },
      async cancel() {
        end?.end(true);
        await pieces.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

/** A `Response` of theirs has no body, not even an empty one. */
const WITHOUT_BODY = new Set([204, 205, 304]);

function responseOf({ status, headers, body }: Answer): Response {
  const all = new Headers();
  for (const [name, value] of headers) all.append(name, value);
  return new Response(WITHOUT_BODY.has(status) ? null : Buffer.from(body), { status, headers: all });
}
