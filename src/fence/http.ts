import { SystemClock } from "../core/clock.js";
import { InvalidNameError, InvalidTokenError, StaleTokenError } from "../core/errors.js";
import { checkName } from "../core/name.js";
import { checkToken, type Fence, type FenceToken } from "./token.js";

/** The token, and the lock that it is a token of: numbers of different locks have no order. Sent as `encodeURIComponent` has it. */
const TOKEN = "Holdfast-Token";
const LOCK = "Holdfast-Lock";
/** Of a shared hold: the lowest live token, or all of them. */
const FLOOR = "Holdfast-Floor";
const LIVE = "Holdfast-Live";

const MEDIA_TYPE = "application/problem+json";

const systemClock = new SystemClock();

/** A problem document (RFC 9457). */
export type Problem = {
  readonly type: `urn:holdfast:${"stale-token" | "missing-token" | "invalid-token" | "invalid-name" | "wrong-lock"}`;
  readonly title: string;
  readonly status: 400 | 409 | 428;
  readonly detail: string;
  readonly lock?: string;
  readonly token?: number;
  /** The lowest token still accepted, where that is known. */
  readonly fence?: number;
};

export interface HttpGuardOptions<Request> {
  /** Where each lock's fence is kept: `memoryFence()` for one process, `redisFence(client)`, `postgresFence(pool)`, … for more. */
  readonly fence: Fence;
  /**
   * The lock whose tokens are wanted for this request. The client must say that it means the same one. A name that no lock
   * can have, and a `URIError` (`decodeURIComponent` of a malformed path), are answered with 400; any other error is thrown.
   */
  readonly lock: (request: Request) => string | Promise<string>;
}

/** The headers that show a hold to a server. A plain number needs the lock's name beside it. */
export function tokenHeaders(hold: FenceToken & { readonly name?: string }, lock?: string): Record<string, string> {
  // How far ahead it may be is for the server to say.
  const { token, floor, live } = checkToken(hold, { aheadMs: Infinity });
  return {
    [TOKEN]: String(token),
    [LOCK]: encodeURIComponent(checkName(lock ?? hold.name)),
    ...(floor === token ? {} : { [FLOOR]: String(floor) }),
    ...(live === undefined ? {} : { [LIVE]: live.join(" ") }),
  };
}

/** `fetch` with the headers of a hold. Rejects with `StaleTokenError` when the server answers that the token is stale. */
export async function fencedFetch(
  hold: { readonly name: string } & Exclude<FenceToken, number>,
  url: string | URL,
  init: RequestInit = {},
): Promise<Response> {
  const headers = new Headers(init.headers);
  for (const [name, value] of Object.entries(tokenHeaders(hold))) headers.set(name, value);
  const response = await fetch(url, { ...init, headers });
  if (response.status === 409 && response.headers.get("content-type")?.toLowerCase().startsWith(MEDIA_TYPE)) {
    const { type, fence } = await problemIn(response.clone());
    if (type === "urn:holdfast:stale-token") {
      throw new StaleTokenError(hold.name, hold.token, typeof fence === "number" ? fence : undefined);
    }
  }
  return response;
}

/** No problem document of a guard is longer, or takes longer. */
const PROBLEM_MAX_BYTES = 64 * 1024;
const PROBLEM_MAX_MS = 2_000;

/** Anybody may have answered, a proxy for one: what is not understood is left to the caller, who has the response. */
async function problemIn(response: Response): Promise<{ readonly type?: unknown; readonly fence?: unknown }> {
  const reader = response.body?.getReader();
  if (reader === undefined) return {};
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  // Only one of the two readers leaves: that settles when the other has left too.
  const leave = (): void => void reader.cancel().catch(() => {});
  // Makes the read under way answer that nothing more comes.
  const timer = systemClock.after(PROBLEM_MAX_MS, leave);
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      pieces.push(piece.value);
      bytes += piece.value.length;
      if (bytes > PROBLEM_MAX_BYTES) return {};
    }
    const value: unknown = JSON.parse(new TextDecoder().decode(Buffer.concat(pieces)));
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    // No problem document: cut short, or of another kind.
    return {};
  } finally {
    systemClock.cancel(timer);
    leave();
  }
}

/** What a guard has accepted for a request, for the write behind it. */
const accepted = new WeakMap<object, Exclude<FenceToken, number>>();

/**
 * The token that a guard accepted for this request (of Hono: `c.req.raw`), to be shown again to the database that is written.
 * A guard refuses late requests before they are handled; it cannot stop one that is being handled and slow.
 */
export function tokenOf(request: object): Exclude<FenceToken, number> {
  const token = accepted.get(request);
  if (token === undefined) throw new InvalidTokenError("token", "no guard has seen this request", "a guarded request");
  return token;
}

/** What to answer for an error of a fence; undefined for any other error. */
export function problemOf(error: unknown): Problem | undefined {
  if (error instanceof StaleTokenError) {
    const { resource, token, fence } = error;
    const more = { lock: resource, token, ...(fence === undefined ? {} : { fence }) };
    return {
      type: "urn:holdfast:stale-token",
      title: "Stale fencing token",
      status: 409,
      detail: error.message,
      ...more,
    };
  }
  if (error instanceof InvalidNameError) {
    return { type: "urn:holdfast:invalid-name", title: "Invalid lock name", status: 400, detail: error.message };
  }
  if (error instanceof InvalidTokenError) {
    return { type: "urn:holdfast:invalid-token", title: "Invalid fencing token", status: 400, detail: error.message };
  }
  return undefined;
}

/** The parts of node:http that are used; Express's requests and responses have them too. */
export interface NodeRequest {
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}
export interface NodeResponse {
  writeHead(status: number, headers: Record<string, string>): unknown;
  end(text: string): unknown;
}

/** For plain node:http: true when the request may go on; otherwise it is answered. */
export function httpGuard<Request extends NodeRequest>(
  options: HttpGuardOptions<Request>,
): (request: Request, response: NodeResponse) => Promise<boolean> {
  return async (request, response) => {
    const problem = await judge(options, request, (name) => request.headers[name]);
    if (problem === undefined) return true;
    const text = JSON.stringify(problem);
    response.writeHead(problem.status, {
      "Content-Type": MEDIA_TYPE,
      "Content-Length": String(Buffer.byteLength(text)),
    });
    response.end(text);
    return false;
  };
}

/** Middleware for Express. */
export function expressGuard<Request extends NodeRequest>(
  options: HttpGuardOptions<Request>,
): (request: Request, response: NodeResponse, next: (error?: unknown) => void) => void {
  const guard = httpGuard(options);
  return (request, response, next) => {
    guard(request, response).then((mayGoOn) => mayGoOn && next(), next);
  };
}

export interface FastifyReplyLike {
  code(status: number): FastifyReplyLike;
  type(type: string): FastifyReplyLike;
  send(text: string): unknown;
}

/** A `preHandler` hook for Fastify. */
export function fastifyGuard<Request extends NodeRequest>(
  options: HttpGuardOptions<Request>,
): (request: Request, reply: FastifyReplyLike) => Promise<unknown> {
  return async (request, reply) => {
    const problem = await judge(options, request, (name) => request.headers[name]);
    return problem && reply.code(problem.status).type(MEDIA_TYPE).send(JSON.stringify(problem));
  };
}

export interface HonoContextLike {
  readonly req: { readonly raw: Request };
}

/** Middleware for Hono. */
export function honoGuard<Context extends HonoContextLike>(
  options: HttpGuardOptions<Context>,
): (context: Context, next: () => Promise<void>) => Promise<Response | undefined> {
  return async (context, next) => {
    const { raw } = context.req;
    const problem = await judge(options, context, (name) => raw.headers.get(name) ?? undefined, raw);
    if (problem === undefined) {
      await next();
      return undefined;
    }
    return new Response(JSON.stringify(problem), { status: problem.status, headers: { "Content-Type": MEDIA_TYPE } });
  };
}

/** What is wrong with a request; undefined when its token was accepted. Errors of the store itself are thrown. */
async function judge<Request extends object>(
  { fence, lock }: HttpGuardOptions<Request>,
  request: Request,
  header: (name: string) => string | string[] | undefined,
  key: object = request,
): Promise<Problem | undefined> {
  const wanted = await wantedOf(lock, request);
  if (typeof wanted !== "string") return wanted;
  const read = (name: string): string | undefined => header(name.toLowerCase())?.toString();
  const [text, named] = [read(TOKEN), read(LOCK)];
  if (text === undefined || named === undefined) {
    const detail = `Send ${TOKEN} and ${LOCK}: this needs the token of a hold of "${wanted}".`;
    return { type: "urn:holdfast:missing-token", title: "Fencing token required", status: 428, detail, lock: wanted };
  }
  if (named !== encodeURIComponent(wanted)) {
    const detail = `${LOCK} names another lock than "${wanted}", whose tokens count here.`;
    return { type: "urn:holdfast:wrong-lock", title: "Token of another lock", status: 400, detail, lock: wanted };
  }
  const [floor, live] = [read(FLOOR), read(LIVE)];
  try {
    const token = {
      token: numberOf(TOKEN, text),
      ...(floor === undefined ? {} : { floor: numberOf(FLOOR, floor) }),
      ...(live === undefined ? {} : { live: live.split(" ").map((one) => numberOf(LIVE, one)) }),
    };
    await fence.accept(wanted, token);
    accepted.set(key, token);
    return undefined;
  } catch (error) {
    const problem = problemOf(error);
    if (problem === undefined) throw error;
    return problem;
  }
}

/** The lock's name comes out of the request, so a name that no lock can have is the client's fault. */
async function wantedOf<Request>(lock: HttpGuardOptions<Request>["lock"], request: Request): Promise<string | Problem> {
  try {
    return checkName(await lock(request));
  } catch (error) {
    const problem = problemOf(
      error instanceof URIError ? new InvalidNameError("its percent-encoding is malformed", "UTF-8") : error,
    );
    if (problem === undefined) throw error;
    return problem;
  }
}

/** Digits and nothing else: a header that came twice holds a comma. */
function numberOf(name: string, text: string): number {
  if (/^\d{1,16}$/.test(text)) return Number(text);
  throw new InvalidTokenError(name, "it is no number", "up to 16 digits");
}
