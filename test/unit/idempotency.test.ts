import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import express, { type RequestHandler } from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import { memoryAnswers } from "../../src/web/answers.js";
import { withIdempotencyKey, withLock } from "../../src/web/express.js";
import holdfast from "../../src/web/fastify.js";
import { heldBy, withIdempotencyKey as honoKey, withLock as honoLock } from "../../src/web/hono.js";
import { type FirstRequest, Idempotency } from "../../src/web/idempotency.js";
import { RequestEnd } from "../../src/web/request-end.js";
import { rig } from "./rig.js";

async function open(): Promise<Locks> {
  const locks = await connect(memoryEngine());
  onTestFinished(() => locks.close());
  return locks;
}

async function serve(app: RequestListener): Promise<string> {
  const server = createServer(app).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const options = (): { answers: ReturnType<typeof memoryAnswers>; scope: () => string } => ({
  answers: memoryAnswers(),
  scope: () => "",
});
const headers = { "Idempotency-Key": "k" };
const post = (url: string, signal?: AbortSignal): Promise<Response> =>
  fetch(url, { method: "POST", headers, ...(signal === undefined ? {} : { signal }) });

/** One route of Express behind an `Idempotency-Key`; `handled` counts. */
async function route(handler: RequestHandler): Promise<{ url: string; locks: Locks; handled: () => number }> {
  const locks = await open();
  const app = express().set("env", "test");
  let count = 0;
  app.post("/", withIdempotencyKey(locks, options()), (request, response, next) => {
    count += 1;
    return handler(request as never, response, next);
  });
  return { url: await serve(app), locks, handled: () => count };
}

test("what a lock further in refused is not kept: it was not done", async () => {
  const locks = await open();
  const lock = { name: "a", waitMs: 0 };
  const app = express();
  app.post("/", withIdempotencyKey(locks, options()), withLock(locks, lock), (_request, response) => {
    response.send("done");
  });
  const url = await serve(app);
  const other = fastify();
  await other.register(holdfast, { locks });
  other.post("/", { lock, idempotency: options() }, async () => "done");
  const third = new Hono();
  third.post("/", honoKey(locks, options()), honoLock(locks, lock), (context) => context.text("done"));
  const ask = async (): Promise<number[]> => [
    (await post(url)).status,
    (await other.inject({ method: "POST", url: "/", headers })).statusCode,
  ];
  const askHono = async (): Promise<Response> => third.request("/", { method: "POST", headers });
  const hold = await locks.mutex("a").acquire();
  expect(await ask()).toEqual([409, 409]);
  expect((await askHono()).status).toBe(409);
  await hold.release();
  expect((await post(url)).status).toBe(200);
  await expect.poll(() => locks.mutex("a").isHeld()).toBe(false);
  expect((await other.inject({ method: "POST", url: "/", headers })).statusCode).toBe(200);
  await expect.poll(() => locks.mutex("a").isHeld()).toBe(false);
  const last = await askHono();
  expect([last.status, await last.text()]).toEqual([200, "done"]);
});

test("while the locks drain a request is answered with 503", async () => {
  const locks = await open();
  const app = new Hono();
  app.post("/lock", honoLock(locks, { name: "a" }), (context) => context.text("done"));
  app.post("/key", honoKey(locks, options()), (context) => context.text("done"));
  const hold = await locks.mutex("b").acquire();
  const drained = locks.drain();
  for (const path of ["/lock", "/key"]) {
    const { status, headers: sent } = await app.request(path, { method: "POST", headers });
    expect([status, sent.get("retry-after")]).toEqual([503, "1"]);
  }
  await hold.release();
  await drained;
});

test("waitUntil of what is no promise does not keep the lock for ever", async () => {
  const locks = await open();
  const app = new Hono();
  app.post("/", honoLock(locks, { name: "a" }), (context) => {
    heldBy(context).waitUntil(undefined as never);
    return context.body(null, 204);
  });
  expect((await app.request("/", { method: "POST" })).status).toBe(204);
  await expect.poll(() => locks.mutex("a").isHeld()).toBe(false);
});

test.each([204, 205, 304])("an answer without a body, %i, is sent again as it was", async (status) => {
  const app = new Hono();
  app.post("/", honoKey(await open(), options()), () => new Response(null, { status }));
  const { url } = await route((_request, response) => void response.status(status).end());
  for (const again of [null, "true"]) {
    const hono = await app.request("/", { method: "POST", headers });
    expect([hono.status, hono.headers.get("idempotency-replayed")]).toEqual([status, again]);
    const sent = await post(url);
    expect([sent.status, sent.headers.get("idempotency-replayed")]).toEqual([status, again]);
    expect(sent.headers.get("content-length")).toBe(status === 205 ? "0" : null);
  }
});

test("a handler that waits until a piece is written, and uses its buffer again, is answered for as it wrote", async () => {
  const { url, handled } = await route(async (_request, response) => {
    const buffer = Buffer.from("a");
    await new Promise((written) => response.write(buffer, written));
    buffer.write("b");
    await new Promise((written) => response.write(buffer, "utf8", written));
    buffer.write("c");
    await new Promise<void>((ended) => response.end(ended));
  });
  expect(await (await post(url)).text()).toBe("ab");
  expect([await (await post(url)).text(), handled()]).toEqual(["ab", 1]);
});

test("an answer that fails half-way gives the key back: it is handled again", async () => {
  async function* broken(): AsyncGenerator<string> {
    yield "a";
    throw new Error("half-way");
  }
  const { url, handled } = await route((_request, response, next) => {
    if (handled() > 1) response.send("whole");
    else pipeline(Readable.from(broken()), response).catch(next);
  });
  await expect(post(url)).rejects.toThrow("fetch failed");
  expect([await (await post(url)).text(), handled()]).toEqual(["whole", 2]);
});

test.each(["pipe", "pipeline", "later"])(
  "the client leaves: an answer that is piped (%s) is kept whole",
  async (how) => {
    let [begun, goOn]: (() => void)[] = [() => {}, () => {}];
    const isBegun = new Promise<void>((resolve) => (begun = resolve));
    const left = new Promise<void>((resolve) => (goOn = resolve));
    async function* pieces(): AsyncGenerator<string> {
      yield "a";
      begun?.();
      await left;
      yield "b";
    }
    const { url, handled } = await route(async (request, response) => {
      request.socket.once("close", () => setImmediate(() => goOn?.()));
      if (how === "later") {
        begun?.();
        await left;
      }
      if (how === "pipe") Readable.from(pieces()).pipe(response);
      // That nobody is there to read it is told when it has been kept.
      else await pipeline(Readable.from(pieces()), response).catch(() => {});
    });
    const client = new AbortController();
    const first = post(url, client.signal);
    await isBegun;
    client.abort();
    await expect(first).rejects.toThrow("abort");
    const again = await post(url);
    expect([again.status, await again.text(), handled()]).toEqual([200, "ab", 1]);
  },
);

test("what Node.js refuses to send is the handler's error, and not the end of the process", async () => {
  const { url, handled } = await route((_request, response) => {
    if (handled() === 1) response.end(5 as never);
    response.statusCode = 99;
    response.end("text");
  });
  expect([(await post(url)).status, (await post(url)).status, handled()]).toEqual([500, 500, 2]);
});

test("a request that somebody else answered while it waited is not answered twice", async () => {
  const locks = await open();
  const hold = await locks.mutex("a").acquire();
  const middleware = withLock(locks, { name: "a", waitMs: 0 });
  const url = await serve((request, response) => {
    middleware(request as never, response, () => {});
    response.end("too late");
  });
  expect(await (await post(url)).text()).toBe("too late");
  await hold.release();
});

test("Fastify: an answer that was sent past it is not kept, and not made again", async () => {
  const app = fastify();
  await app.register(holdfast, { locks: await open() });
  let handled = 0;
  app.post("/", { idempotency: options() }, (_request, reply) => {
    handled += 1;
    reply.hijack();
    reply.raw.writeHead(201).end("raw");
  });
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  onTestFinished(() => app.close());
  expect(await (await post(url)).text()).toBe("raw");
  const again = await post(url);
  expect([again.status, handled]).toEqual([409, 1]);
  expect(await again.json()).toMatchObject({
    type: "urn:holdfast:answer-not-kept",
    detail: expect.stringContaining("201"),
  });
});

test("a scope or fingerprint that answers nothing is refused, and no key is everybody's", async () => {
  const locks = await open();
  const errors: unknown[] = [];
  for (const wrong of [{ scope: () => undefined }, { fingerprint: () => ({}) }]) {
    const app = new Hono();
    app.onError((error, context) => {
      errors.push(error);
      return context.body(null, 500);
    });
    app.post("/", honoKey(locks, { ...options(), ...wrong } as never), (context) => context.text("done"));
    expect((await app.request("/", { method: "POST", headers })).status).toBe(500);
  }
  expect(errors.map(String)).toEqual([expect.stringContaining("scope"), expect.stringContaining("fingerprint")]);
  expect(errors.every((error) => error instanceof InvalidOptionError)).toBe(true);
  for (const wrong of [{ required: 1 }, { answers: { get() {}, put() {} } }]) {
    expect(() => honoKey(locks, { ...options(), ...wrong } as never)).toThrow(InvalidOptionError);
  }
});

test("the same key with another method, path or body is refused, and of another user it is another key", async () => {
  const app = new Hono();
  let count = 0;
  const scope = (context: { req: { header(name: string): string | undefined } }): string =>
    context.req.header("user") ?? "";
  app.use(honoKey(await open(), { answers: memoryAnswers(), scope }));
  app.all("/*", (context) => context.text(`${(count += 1)}`));
  const ask = async (method: string, path: string, body: string, user = "a"): Promise<unknown[]> => {
    const answer = await app.request(path, { method, body, headers: { ...headers, user } });
    return [answer.status, answer.status === 422 || (await answer.text())];
  };
  expect(await ask("POST", "/", "x")).toEqual([200, "1"]);
  expect(await ask("PUT", "/", "x")).toEqual([422, true]);
  expect(await ask("POST", "/?a", "x")).toEqual([422, true]);
  expect(await ask("POST", "/", "y")).toEqual([422, true]);
  expect(await ask("POST", "/", "x", "b")).toEqual([200, "2"]);
  expect(await ask("POST", "/", "x")).toEqual([200, "1"]);
});

test("an answer as long as may be kept, with its headers, is kept; one that is longer is not", async () => {
  const locks = await open();
  const headersOf = { "x-a": "12345" };
  const text = "1234567890";
  // "x-a" and its value, "content-type" and its value, and the body.
  const bytes = 3 + 5 + 12 + "text/plain;charset=UTF-8".length + text.length;
  for (const [maxBytes, again] of [
    [bytes, [200, "true"]],
    [bytes - 1, [409, null]],
  ] as const) {
    const app = new Hono();
    const key = { answers: memoryAnswers({ maxBytes }), scope: () => `${maxBytes}` };
    app.post("/", honoKey(locks, key), () => new Response(text, { headers: headersOf }));
    expect(await (await app.request("/", { method: "POST", headers })).text()).toBe(text);
    const sent = await app.request("/", { method: "POST", headers });
    expect([sent.status, sent.headers.get("idempotency-replayed")]).toEqual(again);
  }
});

test("a handler that never answers loses its key after five minutes", async () => {
  const { clock, open: openAt } = rig();
  const { locks } = await openAt();
  const app = new Hono();
  let signal: AbortSignal | undefined;
  app.post("/", honoKey(locks, options()), (context) => {
    ({ signal } = heldBy(context));
    return new Promise<Response>(() => {});
  });
  void app.request("/", { method: "POST", headers });
  await expect.poll(() => signal).toBeDefined();
  await clock.advance(299_000);
  expect(signal?.aborted).toBe(false);
  // It is not renewed any more: its lease ends.
  await clock.advance(11_000);
  expect(signal?.aborted).toBe(true);
});

test("an answer that came too late is refused as a conflict, and its client may ask again", async () => {
  const app = new Hono();
  const answers = { ...memoryAnswers(), put: async () => false };
  app.post("/", honoKey(await open(), { answers, scope: () => "" }), (context) => context.text("late"));
  const sent = await app.request("/", { method: "POST", headers });
  expect([sent.status, sent.headers.get("retry-after")]).toEqual([409, "1"]);
  expect(await sent.json()).toMatchObject({ type: "urn:holdfast:superseded", status: 409 });
});

test("a request that is kept and then given up ends once: what waitUntil was given keeps the key", async () => {
  const locks = await open();
  const idempotency = new Idempotency<object>(locks, options());
  const facts = { method: "POST", path: "/", key: "k", body: () => "" };
  const { held, finish, abandon } = (await idempotency.begin({}, facts, new RequestEnd())) as FirstRequest;
  let done: () => void = () => {};
  held.waitUntil(new Promise<void>((resolve) => (done = resolve)));
  await finish({ status: 200, headers: [], body: Buffer.from("a") });
  abandon();
  expect(await locks.mutex(held.name).isHeld()).toBe(true);
  done();
  await expect.poll(() => locks.mutex(held.name).isHeld()).toBe(false);
});
