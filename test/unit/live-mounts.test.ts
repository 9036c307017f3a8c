import { createServer, request as httpRequest, type Server } from "node:http";
import { type ClientHttp2Session, connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect as connectTo, type Socket } from "node:net";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { connect } from "../../src/connect.js";
import {
  forFastify,
  forHono,
  forNode,
  type LiveView,
  type LiveViewOptions,
  liveView,
  type Permission,
} from "../../src/live/index.js";
import { Viewer } from "../../src/live/viewer.js";
import { until } from "../servers/process.js";

/** Its types need the browser's, which the library's must not see. */
const HONO_SERVER: string = "@hono/node-server";
type HonoServer = { readonly serve: (options: object, listening: (at: { port: number }) => void) => Server };

const listening = (server: Server): Promise<number> =>
  new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port));
  });

/** Each framework, with the view below `/admin/locks`. */
const MOUNTS: Record<string, (view: LiveView) => Promise<{ port: number; server: Server }>> = {
  async "Node.js"(view) {
    const server = createServer(forNode(view));
    return { port: await listening(server), server };
  },
  async Express(view) {
    const app = express();
    // As programs do: it reads bodies before the view is asked.
    app.use(express.json());
    app.use("/admin/locks", forNode(view));
    const server = createServer(app);
    return { port: await listening(server), server };
  },
  async "Express, in a router"(view) {
    const router = express.Router();
    router.use("/locks", forNode(view));
    const app = express();
    app.use("/admin", router);
    const server = createServer(app);
    return { port: await listening(server), server };
  },
  async Fastify(view) {
    const app = fastify();
    app.all("/admin/locks", forFastify(view));
    app.all("/admin/locks/*", forFastify(view));
    await app.listen({ port: 0, host: "127.0.0.1" });
    return { port: (app.server.address() as AddressInfo).port, server: app.server };
  },
  async "Fastify, with a prefix"(view) {
    const app = fastify();
    await app.register(
      async (scope) => {
        scope.all("/locks", forFastify(view));
        scope.all("/locks/*", forFastify(view));
      },
      { prefix: "/admin" },
    );
    await app.listen({ port: 0, host: "127.0.0.1" });
    return { port: (app.server.address() as AddressInfo).port, server: app.server };
  },
  async Hono(view) {
    const app = new Hono();
    app.all("/admin/locks/*", forHono(view));
    return honoServer(app);
  },
};

async function honoServer(app: Hono): Promise<{ port: number; server: Server }> {
  const { serve } = (await import(HONO_SERVER)) as HonoServer;
  return new Promise((resolve) => {
    const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => resolve({ port, server }));
  });
}

describe.each(Object.entries(MOUNTS))("%s", (_, mount) => {
  async function mounted() {
    const locks = await connect("memory:", { label: "holder" });
    const view = liveView(locks, { everyMs: 100, release: true });
    const { port, server } = await mount(view);
    onTestFinished(async () => {
      view.close();
      server.closeAllConnections();
      server.close();
      await locks.close();
    });
    let reads = 0;
    const { engine } = locks.client;
    const inspect = engine.inspect.bind(engine);
    engine.inspect = (filter = {}) => {
      reads += 1;
      return inspect(filter);
    };
    return { locks, url: `http://127.0.0.1:${port}/admin/locks/`, reads: () => reads };
  }

  test("serves the page, its files and its stream below its path", async () => {
    const { locks, url } = await mounted();
    const hold = await locks.mutex("stock").acquire();
    const page = await fetch(url);
    expect([page.status, page.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    expect(await page.text()).toContain("<bdi>stock</bdi>");
    expect((await fetch(new URL("style.css", url))).headers.get("content-type")).toBe("text/css; charset=utf-8");
    expect((await fetch(new URL("nothing.js", url))).status).toBe(404);
    expect((await fetch(url, { method: "HEAD" })).status).toBe(200);
    expect((await fetch(url, { method: "PUT" })).status).toBe(405);
    const stream = await fetch(new URL("events", url));
    const reader = stream.body?.getReader();
    const { value } = (await reader?.read()) ?? {};
    expect(new TextDecoder().decode(value)).toMatch(/^data: \{"at":.*"stock"/);
    await reader?.cancel();
    await hold.release();
  });

  test("leads from the path without its slash to the page", async () => {
    const { url } = await mounted();
    const answer = await fetch(url.replace(/\/$/, ""));
    expect([answer.status, answer.url]).toEqual([200, url]);
  });

  test("stops reading the store when the page is closed", async () => {
    const { url, reads } = await mounted();
    const stop = new AbortController();
    const stream = await fetch(new URL("events", url), { signal: stop.signal });
    await stream.body?.getReader().read();
    stop.abort();
    for (let before = -1; before !== reads(); ) {
      before = reads();
      await new Promise((done) => setTimeout(done, 500));
    }
    // Whoever looks next is shown it at once.
    const before = reads();
    await (await fetch(url)).text();
    expect(reads()).toBeGreaterThan(before);
  });

  test("takes a lock away for the page alone", async () => {
    const { locks, url } = await mounted();
    const hold = await locks.mutex("stock").acquire();
    const target = new URL(`release?name=stock&token=${hold.token}`, url);
    expect((await fetch(target, { method: "POST" })).status).toBe(403);
    const origin = new URL(url).origin;
    const headers = { origin, "x-holdfast-live-view": "1", "sec-fetch-site": "same-origin" };
    const answer = await fetch(target, { method: "POST", headers });
    expect([answer.status, await answer.json()]).toEqual([200, { released: true }]);
    await until("the holder is told", () => hold.signal.aborted);
  });

  test("refuses a foreign Host, and what a proxy passed on", async () => {
    const { url } = await mounted();
    const statusFor = (headers: Record<string, string>): Promise<number | undefined> =>
      new Promise((resolve, reject) => {
        httpRequest(url, { headers }, (response) => resolve(response.resume().statusCode))
          .on("error", reject)
          .end();
      });
    expect(await statusFor({})).toBe(200);
    expect(await statusFor({ host: "evil.example" })).toBe(403);
    expect(await statusFor({ "x-forwarded-for": "203.0.113.9" })).toBe(403);
  });
});

/** Sends this, word for word, and gives the socket. */
function send(port: number, text: string): Socket {
  const socket = connectTo(port, "127.0.0.1");
  socket.on("error", () => {}).write(text);
  return socket;
}

async function served(options: LiveViewOptions, label = "holder") {
  const locks = await connect("memory:", { label });
  const view = liveView(locks, options);
  const server = createServer(forNode(view));
  const port = await listening(server);
  onTestFinished(async () => {
    view.close();
    server.closeAllConnections();
    server.close();
    await locks.close();
  });
  return { locks, view, server, port };
}

test.each([
  ["/ HTTP/1.0\r\n", 403],
  ["http://localhost/ HTTP/1.0\r\n", 403],
  ["/\\localhost/ HTTP/1.0\r\n", 403],
  ["//localhost/ HTTP/1.0\r\n", 403],
  ["/ HTTP/1.0\r\nHost: localhost\r\n", 200],
  ["/ HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n", 403],
])("who names no host, or two, did not name this machine: GET %j", async (head, status) => {
  const { port } = await served({});
  const socket = send(port, `GET ${head}Connection: close\r\n\r\n`);
  let text = "";
  for await (const piece of socket) text += String(piece);
  expect(text).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
});

test("the path is no part of the host that authorize is told", async () => {
  const asked: string[] = [];
  const { port } = await served({
    authorize: (request) => {
      asked.push(request.url);
      return null;
    },
  });
  for (const path of ["/\\evil.example/a", "//evil.example/a", "http://evil.example/a"]) {
    for await (const _ of send(port, `GET ${path} HTTP/1.1\r\nHost: locks.example\r\nConnection: close\r\n\r\n`));
  }
  expect(asked.map((url) => new URL(url).host)).toEqual(["locks.example", "locks.example", "locks.example"]);
});

/** A server whose every path is the view's. */
const SERVERS: Record<string, (view: LiveView) => Promise<{ port: number; server: Server }>> = {
  async "Node.js"(view) {
    const server = createServer(forNode(view));
    return { port: await listening(server), server };
  },
  async Hono(view) {
    const app = new Hono();
    app.all("/*", forHono(view));
    return honoServer(app);
  },
};

describe.each(Object.entries(SERVERS))("%s", (_, start) => {
  test("who leaves before authorize has answered takes no place", async () => {
    let asked = 0;
    let answer = (): void => {};
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const locks = await connect("memory:");
    const view = liveView(locks, {
      viewers: 1,
      authorize: async (): Promise<Permission> => {
        asked += 1;
        await answered;
        return "read";
      },
    });
    const { port, server } = await start(view);
    onTestFinished(async () => {
      view.close();
      server.closeAllConnections();
      server.close();
      await locks.close();
    });
    const socket = send(port, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await until("it is asked", () => asked === 1);
    socket.destroy();
    await untilNoConnections(server);
    answer();
    const stream = await fetch(`http://127.0.0.1:${port}/events`);
    expect(stream.status).toBe(200);
    await stream.body?.cancel();
  });

  test("a reader that takes nothing does not keep its connection when its stream has ended", async () => {
    // Hono tells of what it cuts off.
    const told = vi.spyOn(console, "error").mockImplementation(() => {});
    onTestFinished(() => told.mockRestore());
    const sent = { pieces: 0 };
    const viewer = new Viewer(
      function* () {
        for (;;) {
          sent.pieces += 1;
          yield new Uint8Array(1_000_000);
        }
      },
      () => {},
      0,
    );
    const headers = { "content-type": "text/event-stream; charset=utf-8" };
    const view = Object.assign(async () => new Response(viewer.body, { headers }), {
      close() {},
      [Symbol.dispose]() {},
    });
    const { port, server } = await start(view);
    onTestFinished(() => void server.close());
    const socket = send(port, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").pause();
    for (let before = 0; before === 0 || before !== sent.pieces; ) {
      before = sent.pieces;
      await new Promise((done) => setTimeout(done, 300));
    }
    viewer.end();
    await untilNoConnections(server);
    socket.destroy();
  });
});

describe("HTTP/2", () => {
  type Answer = { readonly status: unknown; readonly text: string };

  /** Asks, and gives what came first: of a stream, its first message. */
  function ask(client: ClientHttp2Session, headers: Record<string, string>): Promise<Answer> {
    const stream = client.request(headers);
    return new Promise((resolve, reject) => {
      let [status, text]: [unknown, string] = [undefined, ""];
      stream.on("response", (head) => (status = head[":status"]));
      stream.on("data", (piece) => {
        text += String(piece);
        if (text.startsWith("data:")) stream.close();
      });
      stream.on("close", () => resolve({ status, text }));
      stream.on("error", reject);
      stream.end();
    });
  }

  test("serves the page, its stream and its release; a stream that is closed is not read on", async () => {
    const locks = await connect("memory:", { label: "holder" });
    const view = liveView(locks, { everyMs: 100, release: true, viewers: 1 });
    const server = createHttp2Server(forNode(view));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const client = connectHttp2(`http://127.0.0.1:${port}`);
    onTestFinished(async () => {
      client.close();
      view.close();
      server.close();
      await locks.close();
    });
    const hold = await locks.mutex("stock").acquire({ leaseMs: 3_600_000 });
    expect(await ask(client, { ":path": "/locks/" })).toEqual({
      status: 200,
      text: expect.stringContaining("<bdi>stock</bdi>"),
    });
    for (let n = 0; n < 3; n += 1) {
      await until("its place is free", async () => (await ask(client, { ":path": "/locks/events" })).status === 200);
    }
    expect((await ask(client, { ":path": "/", ":authority": "evil.example" })).status).toBe(403);
    const target = { ":method": "POST", ":path": `/locks/release?name=stock&token=${hold.token}` };
    const headers = { origin: `http://127.0.0.1:${port}`, "x-holdfast-live-view": "1" };
    expect((await ask(client, { ...target, ...headers, origin: "http://evil.example" })).status).toBe(403);
    expect(await ask(client, { ...target, ...headers })).toEqual({ status: 200, text: '{"released":true}' });
  });
});

async function untilNoConnections(server: Server): Promise<void> {
  const count = (): Promise<number> => new Promise((resolve) => server.getConnections((_, n) => resolve(n)));
  while ((await count()) > 0) await new Promise((done) => setTimeout(done, 20));
}

test("a page that is larger than what a connection takes at once arrives whole", async () => {
  const text = `${"a large page ".repeat(100_000)}end`;
  const view = Object.assign(async () => new Response(text, { headers: { "content-type": "text/html" } }), {
    close: () => {},
    [Symbol.dispose]: () => {},
  });
  const server = createServer(forNode(view));
  onTestFinished(() => void server.close());
  const answer = await fetch(`http://127.0.0.1:${await listening(server)}/`);
  expect((await answer.text()) === text).toBe(true);
});

test("a reader that takes nothing holds back what is sent to it, and nobody else", async () => {
  const { locks, port } = await served({ everyMs: 100 }, "x".repeat(200));
  const leaseMs = 3_600_000;
  const holds = await Promise.all(
    Array.from({ length: 5_000 }, (_, n) => locks.mutex(`name-${n}`).acquire({ leaseMs })),
  );
  // It asks, and reads nothing of the answer.
  const stalled = httpRequest({ port, host: "127.0.0.1", path: "/events" });
  stalled.on("error", () => {}).end();
  const response = await new Promise<NodeJS.ReadableStream>((resolve) => stalled.on("response", resolve));
  response.pause();
  const names = new Set<string>();
  const other = await fetch(`http://127.0.0.1:${port}/events`);
  const reader = other.body?.getReader();
  let text = "";
  while (names.size < holds.length) {
    const { value } = (await reader?.read()) ?? {};
    text += new TextDecoder().decode(value);
    const messages = text.split("\n\n");
    text = messages.pop() ?? "";
    for (const message of messages) {
      const { set = [] } = JSON.parse(message.slice(6)) as { set?: { name: string }[] };
      for (const { name } of set) names.add(name);
    }
  }
  expect(names.size).toBe(5_000);
  await reader?.cancel();
  stalled.destroy();
  await Promise.all(holds.map((hold) => hold.release()));
});
