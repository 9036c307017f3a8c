import {
  type ClientHttp2Session,
  connect as connectHttp2,
  createServer,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Stream,
  type Settings,
} from "node:http2";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import fastify from "fastify";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { connect } from "../../src/connect.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { forFastify, forHono, forNode, type LiveView, liveView } from "../../src/live/index.js";
import type { Locks } from "../../src/locks.js";
import { memoryAnswers } from "../../src/web/answers.js";
import { withLock as expressLock, withIdempotencyKey } from "../../src/web/express.js";
import holdfast from "../../src/web/fastify.js";
import { withLock as honoLock } from "../../src/web/hono.js";
import { gate } from "../servers/gate.js";
import { until } from "../servers/process.js";

/**
 * A client of HTTP/2 that takes none of what is sent to it, and leaves without an error: Node.js tells nobody that such a response
 * is closed.
 */
async function clientOf(port: number, settings: Settings = { initialWindowSize: 0 }): Promise<ClientHttp2Session> {
  const client = connectHttp2(`http://127.0.0.1:${port}`, { settings });
  onTestFinished(() => client.destroy());
  return client;
}

/** The status; then it leaves, with the same code as a client of Node.js does. */
function asksAndLeaves(client: ClientHttp2Session, path: string): Promise<unknown> {
  const stream = client.request({ ":path": path });
  return new Promise((resolve, reject) => {
    stream.on("response", (head) => {
      stream.close();
      resolve(head[":status"]);
    });
    stream.on("error", reject);
    stream.end();
  });
}

async function listening(server: Http2Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** Its types need the browser's, which the library's must not see. */
const HONO_SERVER: string = "@hono/node-server";
type HonoServer = { readonly createAdaptorServer: (options: object) => Http2Server };

async function onHono(app: Hono): Promise<number> {
  const { createAdaptorServer } = (await import(HONO_SERVER)) as HonoServer;
  return listening(createAdaptorServer({ fetch: app.fetch, createServer }));
}

async function open(): Promise<Locks> {
  const locks = await connect(memoryEngine());
  onTestFinished(() => locks.close());
  return locks;
}

const endless = (): Readable => new Readable({ read() {} });

/** A server whose handler holds the lock "a" while it sends something that never ends. */
const HANDLERS: Readonly<Record<string, (locks: Locks) => Promise<number>>> = {
  "Express's middleware on Node.js"(locks) {
    const middleware = expressLock(locks, { name: "a" });
    return listening(
      createServer((request, response) => {
        middleware(request as never, response as never, () => {
          response.writeHead(200);
          response.write("some of it");
        });
      }),
    );
  },
  async Fastify(locks) {
    const app = fastify({ http2: true });
    // Not awaited: it waits for the stream that Node.js does not end.
    onTestFinished(() => void app.close());
    await app.register(holdfast, { locks });
    app.get("/", { lock: { name: "a" } }, (_request, reply) => {
      const body = endless();
      body.push("some of it");
      return reply.send(body);
    });
    await app.listen({ port: 0, host: "127.0.0.1" });
    return (app.server.address() as AddressInfo).port;
  },
  Hono(locks) {
    const app = new Hono();
    app.get("/", honoLock(locks, { name: "a" }), () => {
      const body = endless();
      body.push("some of it");
      return new Response(Readable.toWeb(body) as ReadableStream);
    });
    return onHono(app);
  },
};

describe.each(Object.entries(HANDLERS))("%s", (_, serve) => {
  test("HTTP/2: a client that leaves while something waits to be sent to it keeps no lock", async () => {
    const locks = await open();
    const granted = new Promise((resolve) => locks.on("granted", resolve));
    const client = await clientOf(await serve(locks));
    expect(await asksAndLeaves(client, "/")).toBe(200);
    await granted;
    await until("the lock is free", async () => !(await locks.mutex("a").isHeld()));
  });
});

type Handler = (request: Http2ServerRequest, response: Http2ServerResponse, next: () => void) => void;

/** `before` stands before the middleware, `handle` behind it. */
async function underLock(locks: Locks, handle: Handler, before: Handler = (_q, _r, next) => next()): Promise<number> {
  const middleware = expressLock(locks, { name: "a" });
  return listening(
    createServer((request, response) => {
      const next = (): void => handle(request, response, () => {});
      before(request, response, () => middleware(request as never, response as never, next));
    }),
  );
}

const freed = (locks: Locks): Promise<void> =>
  until("the lock is free", async () => !(await locks.mutex("a").isHeld()), 20_000);

describe("HTTP/2", () => {
  test("a client that leaves while the rest of an ended response waits to be sent keeps no lock", async () => {
    const locks = await open();
    const client = await clientOf(await underLock(locks, (_, response) => void response.end("all of it")));
    expect(await asksAndLeaves(client, "/")).toBe(200);
    await freed(locks);
  });

  test.each([0, 8])("a client that leaves (code %i) while its HEAD is not answered keeps no lock", async (code) => {
    const locks = await open();
    const granted = new Promise((resolve) => locks.on("granted", resolve));
    const client = await clientOf(await underLock(locks, () => {}));
    const stream = client.request({ ":path": "/", ":method": "HEAD" });
    stream.on("error", () => {});
    await granted;
    stream.close(code);
    await freed(locks);
  });

  test("a client that was answered before it sent all of its request keeps no lock", async () => {
    const locks = await open();
    const client = await clientOf(await underLock(locks, (_, response) => void response.end("enough")), {});
    const stream = client.request({ ":path": "/", ":method": "POST" });
    stream.write("the first part");
    const text = new Promise((resolve) => stream.on("data", (piece) => resolve(String(piece))));
    expect(await text).toBe("enough");
    await freed(locks);
    expect(stream.closed).toBe(false);
    stream.close();
  });

  test("no lock is taken for a client that had left before the middleware was reached", async () => {
    const locks = await open();
    let handled = false;
    const reached = new Promise<void>((resolve) => {
      const before: Handler = (request, response, next) => {
        response.write("progress");
        request.on("aborted", () =>
          setImmediate(() => {
            next();
            resolve();
          }),
        );
      };
      void underLock(locks, () => (handled = true), before)
        .then(clientOf)
        .then((client) => asksAndLeaves(client, "/"));
    });
    await reached;
    await freed(locks);
    expect(handled).toBe(false);
  });

  test("with Idempotency-Key the handler does not see that its client has gone, and its answer is kept", async () => {
    const locks = await open();
    const once = withIdempotencyKey(locks, { answers: memoryAnswers(), scope: () => "" });
    const seen: string[] = [];
    let handled = 0;
    const begun = gate<Http2ServerResponse>();
    const port = await listening(
      createServer((request, response) => {
        once(request as never, response as never, () => {
          handled += 1;
          response.on("finish", () => seen.push("finish"));
          response.on("close", () => seen.push("close"));
          begun.open(response);
        });
      }),
    );
    const client = await clientOf(port, {});
    const head = { ":path": "/", ":method": "POST", "idempotency-key": "k" };
    const first = client.request(head);
    first.on("error", () => {});
    first.end();
    const response = await begun.passed;
    const over = new Promise((resolve) => response.stream.once("close", resolve));
    first.close(8);
    await over;
    await new Promise((resolve) => setImmediate(resolve));
    expect(seen).toEqual([]);
    response.end("kept");
    const again = client.request(head);
    again.end();
    expect(await textOf(again)).toBe("kept");
    expect(handled).toBe(1);
  });
});

const textOf = async (stream: Readable): Promise<string> => Buffer.concat(await stream.toArray()).toString();

const VIEWS: Readonly<Record<string, (view: LiveView) => Promise<number>>> = {
  "Node.js": (view) => listening(createServer(forNode(view))),
  async Fastify(view) {
    const app = fastify({ http2: true });
    onTestFinished(() => app.close());
    app.all("/*", forFastify(view));
    await app.listen({ port: 0, host: "127.0.0.1" });
    return (app.server.address() as AddressInfo).port;
  },
  Hono(view) {
    const app = new Hono();
    app.all("/*", forHono(view));
    return onHono(app);
  },
};

describe.each(Object.entries(VIEWS))("the live view on %s", (_, serve) => {
  test("HTTP/2: a client that leaves while something waits to be sent to it keeps no place", async () => {
    const view = liveView(await open(), { everyMs: 100, viewers: 1 });
    onTestFinished(() => view.close());
    const client = await clientOf(await serve(view));
    for (let n = 0; n < 3; n += 1)
      await until("its place is free", async () => (await asksAndLeaves(client, "/locks/events")) === 200, 20_000);
  });

  test("HTTP/2: a client that leaves while it is not decided whether it may look keeps no place", async () => {
    const asked = gate();
    const decided = gate();
    let isFirst = true;
    const authorize = async (): Promise<"read"> => {
      if (!isFirst) return "read";
      isFirst = false;
      asked.open();
      await decided.passed;
      return "read";
    };
    const view = liveView(await open(), { viewers: 1, authorize });
    onTestFinished(() => view.close());
    const client = await clientOf(await serve(view), {});
    const first = client.request({ ":path": "/locks/events" });
    first.on("error", () => {});
    await asked.passed;
    first.close();
    // The server reads in order: who is answered this, has told of the end before it.
    const style = client.request({ ":path": "/locks/style.css" });
    await textOf(style);
    decided.open();
    await until("its place is free", async () => (await asksAndLeaves(client, "/locks/events")) === 200, 20_000);
  });

  test("HTTP/2: a request that is refused before all of it was sent is answered to its end", async () => {
    const view = liveView(await open());
    onTestFinished(() => view.close());
    const client = await clientOf(await serve(view), {});
    const stream = client.request({ ":path": "/locks/", ":method": "POST" });
    stream.write("the first part");
    expect(await textOf(stream)).toMatch(/Only GET/);
    const after = client.request({ ":path": "/locks/" });
    expect(await textOf(after)).toMatch(/<html/);
  });
});

test("the live view on Hono, HTTP/2: a stream that the server closes is closed for its client too, and keeps no place", async () => {
  const view = liveView(await open(), { viewers: 1 });
  onTestFinished(() => view.close());
  const streams: ServerHttp2Stream[] = [];
  const app = new Hono<{ Bindings: { incoming: Http2ServerRequest } }>();
  app.use("/*", (context, next) => {
    streams.push(context.env.incoming.stream);
    return next();
  });
  app.all("/*", forHono(view));
  const client = await clientOf(await onHono(app as never), {});
  for (let n = 0; n < 3; n += 1) {
    const stream = client.request({ ":path": "/locks/events" });
    const status = await new Promise((resolve) => stream.on("response", (head) => resolve(head[":status"])));
    expect(status).toBe(200);
    const closed = new Promise((resolve) => stream.on("close", resolve));
    stream.on("error", () => {}).resume();
    const server = streams.at(-1) as ServerHttp2Stream;
    // What is destroyed in the middle of this makes Node.js loop until memory is gone: that is to fail, and not to be tried.
    const destroy = vi.spyOn(server, "destroy").mockReturnValue(server);
    server.close(8);
    expect(destroy).not.toHaveBeenCalled();
    destroy.mockRestore();
    await closed;
  }
});
