/** `holdfast/fastify`: a plugin for Fastify 5, `fastify.locks`, and the route options `lock` and `idempotency`. */
import { Readable } from "node:stream";
import type * as Fastify from "fastify";
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  onSendHookHandler,
  preHandlerHookHandler,
  RouteOptions,
} from "fastify";
import { type ConnectOptions, connect } from "../connect.js";
import { checkKnown } from "../core/checks.js";
import { runHolding } from "../core/context.js";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Locks } from "../locks.js";
import { type Answer, isAnswer } from "./answer.js";
import { collect } from "./collect.js";
import { bringsBody, bytesOf, type FirstRequest, Idempotency, type IdempotencyOptions } from "./idempotency.js";
import { grouped, headersOf } from "./node-response.js";
import { endOfNode } from "./request-end.js";
import { type LockRequestOptions, RequestLock } from "./request-lock.js";

export * from "./exports.js";

declare module "fastify" {
  // The type parameters must be those of Fastify's own declarations, used or not.
  interface FastifyInstance<RawServer, RawRequest, RawReply, Logger, TypeProvider> {
    /** All recipes on the store of this server. */
    readonly locks: Locks;
  }
  interface RouteShorthandOptions<
    RawServer extends Fastify.RawServerBase,
    RawRequest extends Fastify.RawRequestDefaultExpression<RawServer>,
    RawReply extends Fastify.RawReplyDefaultExpression<RawServer>,
    RouteGeneric extends Fastify.RouteGenericInterface,
    ContextConfig,
    SchemaCompiler extends Fastify.FastifySchema,
    TypeProvider extends Fastify.FastifyTypeProvider,
    Logger extends Fastify.FastifyBaseLogger,
  > {
    /** Holds a lock while a request is handled: until its response has been sent, or its client has gone. */
    lock?: LockRequestOptions<FastifyRequest<RouteGeneric, RawServer, RawRequest>>;
    /** Handles the first request with an `Idempotency-Key`, and answers others with the same key as that one was. */
    idempotency?: IdempotencyOptions<FastifyRequest<RouteGeneric, RawServer, RawRequest>>;
  }
}

/** Either the locks, which are yours to close, or where to connect to: then they drain, and close with the server. */
export interface HoldfastPluginOptions {
  readonly locks?: Locks;
  readonly url?: string;
  readonly connect?: ConnectOptions;
  /** As for `locks.drain`. */
  readonly graceMs?: number;
}

/** Fastify's own options of `register` come with those of the plugin. */
const KNOWN = ["locks", "url", "connect", "graceMs", "prefix", "logLevel", "logSerializers"];

/** `await app.register(holdfast, { url: "redis://…" })`, before the first route. */
const holdfast = async (fastify: FastifyInstance, options: HoldfastPluginOptions): Promise<void> => {
  checkKnown(options, KNOWN);
  const { graceMs } = options;
  if (options.locks !== undefined && [options.url, options.connect, graceMs].some((one) => one !== undefined)) {
    throw new InvalidOptionError("locks", "there is url, connect or graceMs beside it", "alone");
  }
  // Fastify tells of routes as they are made: the lock of an earlier one would be ignored in silence.
  if (hasRoutes(fastify)) {
    throw new MisuseError(
      "There are routes already, whose option `lock` would be ignored. Await app.register(holdfast) before the first route.",
    );
  }
  const locks = options.locks ?? (await connect(options.url, options.connect));
  fastify.decorate("locks", locks);
  if (options.locks === undefined) drainWith(fastify, locks, graceMs);
  fastify.addHook("onRoute", (route) => addHooks(locks, route));
};

// What fastify-plugin does: routes beside the plugin see it, not only those inside.
export default Object.assign(holdfast, {
  [Symbol.for("skip-override")]: true,
  [Symbol.for("fastify.display-name")]: "holdfast",
  [Symbol.for("plugin-meta")]: { name: "holdfast", fastify: "5.x" },
});

/** Before the server waits for its requests: those that wait for a lock end by this. It has closed when the locks have. */
function drainWith(fastify: FastifyInstance, locks: Locks, graceMs: number | undefined): void {
  fastify.addHook("preClose", async () => {
    // Awaited below; until then a failure must not count as unhandled.
    locks.drain(graceMs === undefined ? {} : { graceMs }).catch(() => {});
  });
  fastify.addHook("onClose", () => locks.drain());
}

/** Each is listed with its methods. */
const hasRoutes = (fastify: FastifyInstance): boolean => /\([A-Z]/.test(fastify.printRoutes());

/** Last before the handler: who may not ask, or asks nonsense, takes no lock. */
function addHooks(locks: Locks, route: RouteOptions): void {
  const { lock, idempotency } = route;
  const hooks: preHandlerHookHandler[] = [];
  if (idempotency !== undefined) {
    const { before, onSend } = idempotencyHooks(new Idempotency<FastifyRequest>(locks, idempotency));
    hooks.push(before);
    // First: what is kept is not compressed yet.
    route.onSend = [onSend, ...listOf(route.onSend)];
  }
  if (lock !== undefined) hooks.push(lockHook(new RequestLock<FastifyRequest>(locks, lock)));
  if (hooks.length > 0) route.preHandler = [...listOf(route.preHandler), ...hooks];
}

const listOf = <T>(hooks: T | T[] | undefined): T[] => (hooks === undefined ? [] : ([hooks].flat() as T[]));

function lockHook(lock: RequestLock<FastifyRequest>): preHandlerHookHandler {
  return (request, reply, done) => {
    lock.take(request, endOfNode(request.raw, reply.raw)).then((held) => {
      if (held === null) reply.hijack();
      else if (isAnswer(held)) void setHead(reply, held).send(Buffer.from(held.body));
      else runHolding([held.hold], done);
    }, done);
  };
}

function idempotencyHooks(idempotency: Idempotency<FastifyRequest>): {
  before: preHandlerHookHandler;
  onSend: onSendHookHandler;
} {
  const firsts = new WeakMap<FastifyRequest, FirstRequest & { readonly before: ReadonlySet<string> }>();
  return {
    before(request, reply, done) {
      const { method, url, headers, body } = request;
      const facts = {
        method,
        path: url,
        key: headers["idempotency-key"]?.toString(),
        body: () => bytesOf(body, bringsBody(headers)),
      };
      const end = endOfNode(request.raw, reply.raw);
      idempotency.begin(request, facts, end).then((begun) => {
        if (begun === null) reply.hijack();
        else if (begun === "pass") done();
        else if (isAnswer(begun)) void setHead(reply, begun).send(Buffer.from(begun.body));
        else {
          firsts.set(request, { ...begun, before: new Set(Object.keys(reply.getHeaders())) });
          // Sent by the handler itself, past Fastify: what it was is not known, but that there was an answer is.
          end.on((answered) => {
            if (answered && firsts.delete(request))
              void begun.finish({ status: reply.raw.statusCode, headers: [], body: null });
          });
          runHolding([begun.held.hold], done);
        }
      }, done);
    },
    onSend(request, reply, payload, done) {
      const first = firsts.get(request);
      firsts.delete(request);
      if (first === undefined) return done(null, payload);
      const failed = (error: Error): void => {
        first.abandon();
        done(error);
      };
      kept(first, reply, payload).then((sent) => done(null, sent), failed);
    },
  };
}

/** What is sent, when it has been kept. */
async function kept(
  { maxBytes, finish, before }: FirstRequest & { readonly before: ReadonlySet<string> },
  reply: FastifyReply,
  payload: unknown,
): Promise<unknown> {
  const { whole, stream } = await collect(piecesOf(payload), maxBytes);
  const instead = await finish({ status: reply.statusCode, headers: headersOf(reply.getHeaders()), body: whole });
  if (instead !== null) {
    for (const name of Object.keys(reply.getHeaders())) if (!before.has(name)) reply.removeHeader(name);
    setHead(reply, instead);
    return Buffer.from(instead.body);
  }
  if (whole === null) return Readable.from(stream, { objectMode: false });
  return payload === null || payload === undefined ? payload : Buffer.from(whole);
}

async function* piecesOf(payload: unknown): AsyncGenerator {
  if (payload === null || payload === undefined) return;
  if (typeof payload === "object" && Symbol.asyncIterator in payload) yield* payload as AsyncIterable<unknown>;
  else yield payload;
}

/** What other hooks have said of it stays, except for what describes another body. */
function setHead(reply: FastifyReply, { status, headers }: Answer): FastifyReply {
  for (const name of Object.keys(reply.getHeaders())) if (/^content-|^etag$/.test(name)) reply.removeHeader(name);
  for (const [name, value] of grouped(headers)) reply.header(name, value);
  return reply.code(status);
}
