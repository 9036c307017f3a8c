import { type Http2Request, onStreamOver } from "../http2.js";
import type { LiveView } from "./live-view.js";

/** The parts of a request of node:http or node:http2 that are used here. `originalUrl` is of Express: before a router cut off what it matched. */
type NodeRequest = Http2Request & {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  readonly originalUrl?: string;
  readonly rawHeaders: readonly string[];
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly socket: { readonly remoteAddress?: string | undefined; readonly destroyed?: boolean };
};
type NodeResponse = {
  readonly headersSent: boolean;
  readonly destroyed?: boolean;
  on(event: "close" | "drain", listener: () => void): unknown;
  writeHead(status: number, headers?: Record<string, string>): unknown;
  write(piece: Uint8Array): boolean;
  end(): unknown;
  destroy(): unknown;
};

/** For Node.js's `http.createServer(forNode(view))` (or that of `http2`), and for Express: `app.use("/locks", forNode(view))`. */
export function forNode(view: LiveView): (request: NodeRequest, response: NodeResponse) => void {
  return (request, response) => void serve(view, request, response);
}

/** The parts of Fastify's request and reply that are used here. */
type FastifyRequest = { readonly raw: NodeRequest };
type FastifyReply = { readonly raw: NodeResponse; hijack(): unknown };

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
  return async ({ req, env }) => {
    const { incoming, outgoing } = (env ?? {}) as {
      incoming?: NodeRequest;
      outgoing?: { readonly destroyed?: boolean };
    };
    // Hono's server reads on, unless it is told that the response is closed. Not at once: this comes while Node.js closes the stream.
    const close = (): void => void incoming?.stream?.destroy();
    if (incoming?.httpVersionMajor === 2) incoming.once?.("aborted", () => void setImmediate(close));
    const answer = await view(req.raw, { remoteAddress: incoming?.socket?.remoteAddress });
    // Who left before there was an answer is not told of again.
    if (outgoing?.destroyed === true || incoming?.socket?.destroyed === true) await answer.body?.cancel();
    return answer;
  };
}

async function serve(view: LiveView, request: NodeRequest, response: NodeResponse): Promise<void> {
  // It may have left while the framework did something else.
  let left = response.destroyed === true || request.socket.destroyed === true;
  let leave = (): void => {};
  const over = (): void => {
    left = true;
    leave();
  };
  response.on("close", over);
  onStreamOver(request, over);
  try {
    const answer = await view(requestOf(request), { remoteAddress: request.socket.remoteAddress });
    if (left) return await answer.body?.cancel();
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (request.method !== "HEAD" && answer.body !== null) {
      const reader = answer.body.getReader();
      leave = () => void reader.cancel().catch(() => {});
      await pass(reader, response);
    }
    response.end();
  } catch {
    // The view cut it off; or what came was no request.
    if (response.headersSent) return void response.destroy();
    response.writeHead(400);
    response.end();
  }
}

/** Its head: nothing that the view answers has a body, which a framework may have read already. */
function requestOf(request: NodeRequest): Request {
  const path = (request.originalUrl ?? request.url ?? "/").replace(/^[a-z]+:\/\/[^/]*/i, "");
  const base = `http://${String(request.headers.host ?? request.headers[":authority"])}`;
  const headers = new Headers();
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    const name = request.rawHeaders[at] ?? "";
    // HTTP/2 has more than headers among them.
    if (!name.startsWith(":")) headers.append(name, request.rawHeaders[at + 1] ?? "");
  }
  // Put together as text: a path that begins with two slashes would be read as a host. Who names no host did not name this one.
  const origin = URL.canParse(base) ? new URL(base).origin : "http://host.invalid";
  return new Request(`${origin}${path.replace(/^\/*/, "/")}`, { method: request.method ?? "GET", headers });
}

/** As fast as it is read: what waits, waits in the view, which counts it. */
async function pass(reader: ReadableStreamDefaultReader<Uint8Array>, response: NodeResponse): Promise<void> {
  let goOn: () => void = () => {};
  response.on("drain", () => goOn());
  // It may end, by either side, while it is not read.
  reader.closed.catch(() => {}).finally(() => goOn());
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    const room = new Promise<void>((resolve) => (goOn = resolve));
    if (!response.write(piece.value)) await room;
  }
}
