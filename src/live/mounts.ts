import type { IncomingMessage, ServerResponse } from "node:http";
import type { LiveView } from "./live-view.js";

/** Of Express: the path before a router cut off what it matched. */
type NodeRequest = IncomingMessage & { readonly originalUrl?: string };

/** For Node.js's `http.createServer(forNode(view))`, and for Express: `app.use("/locks", forNode(view))`. */
export function forNode(view: LiveView): (request: IncomingMessage, response: ServerResponse) => void {
  return (request, response) => void serve(view, request, response);
}

/** The parts of Fastify's request and reply that are used here. */
type FastifyRequest = { readonly raw: IncomingMessage };
type FastifyReply = { readonly raw: ServerResponse; hijack(): unknown };

/** For Fastify: `app.all("/locks", forFastify(view))` and `app.all("/locks/*", forFastify(view))`. */
export function forFastify(view: LiveView): (request: FastifyRequest, reply: FastifyReply) => void {
  return (request, reply) => {
    reply.hijack();
    void serve(view, request.raw, reply.raw);
  };
}

/** The parts of Hono's context that are used here; `env` is what `@hono/node-server` puts there. */
type HonoContext = { readonly req: { readonly raw: Request }; readonly env?: unknown };

/** For Hono: `app.all("/locks/*", forHono(view))`. */
export function forHono(view: LiveView): (context: HonoContext) => Promise<Response> {
  return ({ req, env }) => {
    const { incoming } = (env ?? {}) as { incoming?: IncomingMessage };
    return view(req.raw, { remoteAddress: incoming?.socket?.remoteAddress });
  };
}

async function serve(view: LiveView, request: NodeRequest, response: ServerResponse): Promise<void> {
  try {
    const answer = await view(requestOf(request), { remoteAddress: request.socket.remoteAddress });
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (request.method !== "HEAD" && answer.body !== null) await pass(answer.body, response);
    const isStream = answer.headers.get("content-type")?.startsWith("text/event-stream") === true;
    // Whoever takes nothing of a stream would keep what was written last, and its connection, for ever. A page is written whole.
    if (isStream && response.writableNeedDrain) response.destroy();
    else response.end();
  } catch {
    // Who asked has left, or sent what is no request.
    if (!response.headersSent) response.writeHead(400);
    response.end();
  }
}

/** Its head: nothing that the view answers has a body, which a framework may have read already. */
function requestOf(request: NodeRequest): Request {
  const path = (request.originalUrl ?? request.url ?? "/").replace(/^[a-z]+:\/\/[^/]*/i, "");
  const base = `http://${request.headers.host}`;
  const headers = new Headers();
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    headers.append(request.rawHeaders[at] ?? "", request.rawHeaders[at + 1] ?? "");
  }
  // Put together as text: a path that begins with two slashes would be read as a host. Who names no host did not name this one.
  return new Request(
    `${URL.canParse(base) ? new URL(base).origin : "http://host.invalid"}${path.replace(/^\/*/, "/")}`,
    {
      method: request.method ?? "GET",
      headers,
    },
  );
}

/** As fast as it is read: what waits, waits in the view, which counts it. */
async function pass(body: ReadableStream<Uint8Array>, response: ServerResponse): Promise<void> {
  const reader = body.getReader();
  let goOn: () => void = () => {};
  const leave = (): void => {
    goOn();
    reader.cancel().catch(() => {});
  };
  response.on("drain", () => goOn());
  response.once("close", leave);
  // Who left before there was an answer is not told of again.
  if (response.destroyed) return leave();
  // It may end while it is not read.
  reader.closed.catch(() => {}).finally(() => goOn());
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const full = new Promise<void>((resolve) => (goOn = resolve));
    if (!response.write(piece.value) && !response.destroyed) await full;
  }
}
