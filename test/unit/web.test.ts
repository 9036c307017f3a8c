import { createServer, type IncomingMessage } from "node:http";
import fastify, { type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError, LockLostError, MisuseError, UnsupportedError } from "../../src/core/errors.js";
import type { AcquireOptions } from "../../src/core/options.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import { quorumEngine } from "../../src/engines/quorum/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type AnswerStore, memoryAnswers, type StoredAnswer } from "../../src/web/answers.js";
import { cellAnswers } from "../../src/web/cell-answers.js";
import { withLock as expressLock } from "../../src/web/express.js";
import holdfast, { heldBy as heldByFastify } from "../../src/web/fastify.js";
import { heldBy, withIdempotencyKey, withLock } from "../../src/web/hono.js";
import { digest, parseKey } from "../../src/web/idempotency-key.js";
import { RequestEnd } from "../../src/web/request-end.js";
import { type RequestHold, RequestLock } from "../../src/web/request-lock.js";
import { rig } from "./rig.js";

async function open(): Promise<Locks> {
  const locks = await connect(memoryEngine());
  onTestFinished(() => locks.close());
  return locks;
}

const isFree = async (locks: Locks, name: string): Promise<boolean> => !(await locks.mutex(name).isHeld());
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("a key is a quoted string of printable ASCII, or the same without quotes", () => {
  expect(parseKey("abc")).toBe("abc");
  expect(parseKey(' "abc" ')).toBe("abc");
  expect(parseKey('"a \\"b\\" \\\\"')).toBe('a "b" \\');
  expect(parseKey("x".repeat(255))).toHaveLength(255);
  const none = [
    "",
    " ",
    '""',
    '"',
    '"a',
    'a"',
    '"a"b"',
    '"a", "b"',
    "a b",
    "a,b",
    '"a\\b"',
    "é",
    '"é"',
    "a\tb",
    "\u0000",
  ];
  expect(none.map(parseKey).filter((key) => key !== undefined)).toEqual([]);
  expect([parseKey("x".repeat(256)), parseKey(`"${"x".repeat(256)}"`), parseKey("x".repeat(10_000))]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
});

test("digests tell where one part ends and the next begins, and are no longer than a name may be", () => {
  expect(digest("a", "bc")).not.toBe(digest("ab", "c"));
  expect(digest("a", "")).not.toBe(digest("a"));
  expect(digest("é")).toBe(digest(Buffer.from("é")));
  expect(digest("x".repeat(10_000))).toMatch(/^[\w-]{43}$/);
});

const answer = (token: number, text = `answer ${token}`): StoredAnswer => ({
  status: 200,
  headers: [["content-type", "text/plain"]],
  body: Buffer.from(text),
  fingerprint: "f",
  token,
});

const KINDS: Record<string, (options: { keepMs: number; clock: FakeClock }) => Promise<AnswerStore>> = {
  memory: async (options) => memoryAnswers(options),
  cells: async (options) => cellAnswers(await open(), { slots: 1, ...options }),
};

test.each(Object.keys(KINDS))("answers in %s are kept as they were, until their time is over", async (kind) => {
  const clock = new FakeClock();
  const store = await (KINDS[kind] as NonNullable<(typeof KINDS)[string]>)({ keepMs: 1_000, clock });
  const binary: StoredAnswer = {
    ...answer(1),
    headers: [
      ["link", "a"],
      ["link", "b"],
    ],
    body: Buffer.from([0, 255, 128]),
  };
  const without: StoredAnswer = { ...answer(1), body: null };
  await store.put("text", answer(1, "grüße\u0000"));
  await store.put("binary", binary);
  await store.put("without", without);
  expect(await store.get("text")).toEqual(answer(1, "grüße\u0000"));
  expect(await store.get("binary")).toEqual(binary);
  expect(await store.get("without")).toEqual(without);
  expect(await store.get("nothing")).toBeUndefined();
  await clock.advance(999);
  expect(await store.get("text")).toBeDefined();
  await clock.advance(1);
  expect(await store.get("text")).toBeUndefined();
  // What has ended is in nobody's way, whatever its token was.
  expect(await store.put("text", answer(0))).toBe(true);
});

test.each(Object.keys(KINDS))("an answer in %s is not replaced by one with a lower token", async (kind) => {
  const store = await (KINDS[kind] as NonNullable<(typeof KINDS)[string]>)({ keepMs: 1_000, clock: new FakeClock() });
  expect(await store.put("key", answer(5))).toBe(true);
  expect(await store.put("key", answer(4))).toBe(false);
  expect(await store.get("key")).toEqual(answer(5));
  expect(await store.put("key", answer(5, "again"))).toBe(true);
  expect(await store.put("key", answer(6))).toBe(true);
  expect(await store.get("key")).toEqual(answer(6));
});

test("of answers in memory the oldest go when there are too many", async () => {
  const store = memoryAnswers({ maxAnswers: 3 });
  for (const key of ["a", "b", "c", "d"]) await store.put(key, answer(1));
  await store.put("b", answer(2));
  await store.put("e", answer(1));
  const kept = await Promise.all(["a", "b", "c", "d", "e"].map(async (key) => (await store.get(key)) !== undefined));
  expect(kept).toEqual([false, true, false, true, true]);
});

test("a cell of answers stays below its bound: the oldest go, the newest stays", async () => {
  const engine = memoryEngine();
  const locks = await connect(engine);
  onTestFinished(() => locks.close());
  const store = cellAnswers(locks, { slots: 1, slotBytes: 4_096, name: "kept" });
  for (let n = 0; n < 50; n += 1) {
    await store.put(`key-${n}`, answer(1, "x".repeat(1_000)));
    expect((await engine.cells?.read("kept:0"))?.value?.length).toBeLessThan(4_200);
    expect(await store.get(`key-${n}`)).toBeDefined();
  }
  expect(await store.get("key-46")).toBeUndefined();
  expect(await store.get("key-48")).toBeDefined();
  // What takes six letters for a byte is longer than the bound by itself.
  await store.put("long", answer(1, "\u0000".repeat(1_000)));
  expect(await store.get("long")).toBeDefined();
});

test("options that cannot be are refused when the middleware is made, not with the first request", async () => {
  const locks = await open();
  const wrong: Record<string, unknown>[] = [
    {},
    { name: "" },
    { name: 5 },
    { name: "a", waitms: 5 },
    { name: "a", waitMs: -1 },
    { name: "a", leaseMs: 1 },
    { name: "a", maxWaiting: 0 },
    { name: "a", busyStatus: 200 },
    { name: "a", retryAfterSeconds: 0.5 },
    { name: "a", recipe: "mutex" },
  ];
  for (const options of wrong) {
    expect(() => withLock(locks, options as never), JSON.stringify(options)).toThrow(/^Invalid (option|name)/);
  }
  const scope = (): string => "";
  expect(() => withIdempotencyKey(locks, { scope } as never)).toThrow(InvalidOptionError);
  expect(() => withIdempotencyKey(locks, { answers: memoryAnswers() } as never)).toThrow(InvalidOptionError);
  expect(() => cellAnswers(locks, { slots: 0 })).toThrow(InvalidOptionError);
  const quorum = await connect(await quorumEngine([memoryEngine(), memoryEngine(), memoryEngine()]));
  onTestFinished(() => quorum.close());
  expect(() => cellAnswers(quorum)).toThrow(UnsupportedError);
});

test("a lock is not taken for a client that had left before the middleware was reached", async () => {
  const locks = await open();
  const middleware = expressLock<IncomingMessage>(locks, { name: "a" });
  const ran = new Promise<string>((resolve) => {
    const server = createServer((request, response) => {
      response.on("close", () => {
        middleware(request, response, () => resolve("handled"));
        setTimeout(() => resolve("not handled"), 20);
      });
      request.socket.destroy();
    }).listen(0, "127.0.0.1", () => {
      const { port } = server.address() as { port: number };
      fetch(`http://127.0.0.1:${port}`).catch(() => server.close());
    });
  });
  expect(await ran).toBe("not handled");
  expect(await isFree(locks, "a")).toBe(true);
});

test("Hono without a server below: the lock ends with the response's body, or with the request's signal", async () => {
  const locks = await open();
  const app = new Hono();
  const lock = withLock(locks, { name: "a", waitMs: 0 });
  let more: () => void = () => {};
  app.post("/empty", lock, (context) => context.body(null, 204));
  app.post("/text", lock, (context) => context.text(String(heldBy(context).token > 0), 201, { "X-Seen": "yes" }));
  app.post("/throws", lock, () => {
    throw new Error("no");
  });
  app.post("/stream", lock, () => {
    async function* pieces(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("one");
      await new Promise<void>((resolve) => (more = resolve));
      yield Buffer.from("two");
    }
    return new Response(ReadableStream.from(pieces()));
  });
  app.post("/never", lock, () => new Promise<Response>(() => {}));
  app.onError((error, context) => context.text(error.message, 500));
  const ask = (path: string, init: RequestInit = {}): Response | Promise<Response> =>
    app.request(path, { method: "POST", ...init });

  expect((await ask("/empty")).status).toBe(204);
  expect(await isFree(locks, "a")).toBe(true);
  const text = await ask("/text");
  expect(await isFree(locks, "a")).toBe(false);
  expect((await ask("/text")).status).toBe(409);
  expect([text.status, text.headers.get("x-seen"), await text.text()]).toEqual([201, "yes", "true"]);
  await turn();
  const thrown = await ask("/throws");
  expect([thrown.status, await thrown.text()]).toEqual([500, "no"]);
  await turn();
  const reader = (await ask("/stream")).body?.getReader();
  await reader?.read();
  expect(await isFree(locks, "a")).toBe(false);
  const rest = reader?.read();
  await turn();
  more();
  await rest;
  expect((await reader?.read())?.done).toBe(true);
  expect(await isFree(locks, "a")).toBe(true);
  await (await ask("/stream")).body?.cancel();
  expect(await isFree(locks, "a")).toBe(true);
  const client = new AbortController();
  void ask("/never", { signal: client.signal });
  await turn();
  expect(await isFree(locks, "a")).toBe(false);
  client.abort();
  await turn();
  expect(await isFree(locks, "a")).toBe(true);
});

test("Hono without a server below: an answer is kept, and sent again", async () => {
  const locks = await open();
  const app = new Hono();
  let count = 0;
  app.use(withIdempotencyKey(locks, { answers: memoryAnswers(), scope: () => "" }));
  app.post("/", async (context) => {
    count += 1;
    return context.json({ count, body: await context.req.json() }, 201, { "Set-Cookie": "a=b" });
  });
  app.get("/", (context) => context.text("read"));
  const ask = (method: string): Response | Promise<Response> =>
    app.request("/", { method, headers: { "Idempotency-Key": "k" }, ...(method === "GET" ? {} : { body: '{"a":1}' }) });
  const first = await ask("POST");
  expect([await first.json(), first.headers.get("set-cookie")]).toEqual([{ count: 1, body: { a: 1 } }, "a=b"]);
  const again = await ask("POST");
  expect([again.status, await again.json(), again.headers.get("set-cookie")]).toEqual([
    201,
    { count: 1, body: { a: 1 } },
    null,
  ]);
  // Nothing is changed by it, so nothing is done once.
  expect(await (await ask("GET")).text()).toBe("read");
});

test("Fastify: locks that the plugin opened close with the server, and those that it was given do not", async () => {
  const own = fastify();
  await own.register(holdfast, { url: "memory:fastify" });
  const { locks } = own;
  expect(await locks.mutex("a").using(() => "held")).toBe("held");
  await own.close();
  await expect(locks.mutex("a").acquire()).rejects.toThrow("closed");
  const given = await open();
  const other = fastify();
  await other.register(holdfast, { locks: given });
  expect(other.locks).toBe(given);
  await other.close();
  expect(await given.mutex("a").using(() => "held")).toBe("held");
});

test("Fastify: a plugin that comes after a route, or with both locks and a url, is refused", async () => {
  const late = fastify();
  void late.register(holdfast, { url: "memory:" });
  // Not awaited: the plugin is loaded after this, and would never hear of it.
  late.post("/", { lock: { name: "a" } }, async () => "unlocked");
  await expect(late.ready()).rejects.toThrow(MisuseError);
  const both = fastify();
  await expect(both.register(holdfast, { locks: await open(), url: "memory:" })).rejects.toThrow(InvalidOptionError);
});

test("Fastify: the lock is taken after every other hook, in routes of plugins too, and ends with an injected request", async () => {
  const locks = await open();
  const app = fastify();
  await app.register(holdfast, { locks });
  const seen: unknown[] = [];
  await app.register(async (routes) => {
    routes.get("/:may", {
      preHandler: async (request, reply) => {
        seen.push(await isFree(locks, "a"));
        if (request.url === "/no") return reply.code(403).send();
        return undefined;
      },
      lock: { name: "a" },
      handler: async (request) => String(heldByFastify(request).token > 0),
    });
  });
  expect((await app.inject("/yes")).body).toBe("true");
  await turn();
  expect(await isFree(locks, "a")).toBe(true);
  expect((await app.inject("/no")).statusCode).toBe(403);
  expect(seen).toEqual([true, true]);
  await app.close();
});

test("the end of a request is told once, and stays as it was", () => {
  const end = new RequestEnd();
  const told: boolean[] = [];
  end.on((answered) => told.push(answered));
  end.end(true);
  end.end(false);
  end.on((answered) => told.push(answered));
  expect(told).toEqual([true, true]);
});

describe("a lock for a request", () => {
  const request = (): object => ({});

  test("as many wait as may; whoever has ended its wait leaves room for the next", async () => {
    const locks = await open();
    const lock = new RequestLock<object>(locks, { name: "a", maxWaiting: 2 });
    const hold = await locks.mutex("a").acquire();
    const waits = [lock.take(request(), new RequestEnd()), lock.take(request(), new RequestEnd())];
    expect(await lock.take(request(), new RequestEnd())).toMatchObject({ status: 503 });
    await hold.release();
    const held = (await waits[0]) as RequestHold;
    const third = lock.take(request(), new RequestEnd());
    expect(await lock.take(request(), new RequestEnd())).toMatchObject({ status: 503 });
    held.over();
    for (const wait of [waits[1], third]) ((await wait) as RequestHold).over();
  });

  test("that the locks themselves refuse, because too many wait or are held, is answered with 503 and Retry-After", async () => {
    const locks = await connect(memoryEngine(), { maxWaiters: 1, maxClaims: 3 });
    onTestFinished(() => locks.close());
    const app = new Hono();
    app.get(
      "/:name",
      withLock(locks, { name: (context) => context.req.param("name") ?? "", retryAfterSeconds: 7 }),
      (context) => context.text("done"),
    );
    const first = await locks.mutex("a").acquire();
    const waiting = locks.mutex("a").acquire();
    const problem = async (path: string): Promise<unknown> => {
      const response = await app.request(path);
      const { type, status } = (await response.json()) as Record<string, unknown>;
      return [response.status, response.headers.get("retry-after"), type, status];
    };
    const refused = [503, "7", "urn:holdfast:too-many-waiting", 503];
    expect(await problem("/a")).toEqual(refused);
    const second = await locks.mutex("b").acquire();
    expect(await problem("/c")).toEqual(refused);
    await second.release();
    expect((await app.request("/c")).status).toBe(200);
    await first.release();
    await (await waiting).release();
  });

  test.each([false, true])("is given back when its client left as it was granted (it lasts: %s)", async (lasting) => {
    const locks = await open();
    const end = new RequestEnd();
    const mutex = locks.mutex("a");
    const recipe = () => ({
      async tryAcquire(options: AcquireOptions) {
        const hold = await mutex.tryAcquire(options);
        end.end(false);
        return hold;
      },
    });
    const lock = new RequestLock<object>(locks, { name: "a", recipe }, lasting);
    const key = request();
    expect(await lock.take(key, end)).toBeNull();
    await turn();
    expect(await isFree(locks, "a")).toBe(true);
    expect(() => heldBy(key)).toThrow(MisuseError);
  });

  test("is not kept by waitUntil when it was lost", async () => {
    const { clock, open: openAt } = rig();
    const { locks } = await openAt();
    const lock = new RequestLock<object>(locks, { name: "a", maxHoldMs: 1_000 });
    const held = (await lock.take(request(), new RequestEnd())) as RequestHold;
    held.waitUntil(turn());
    await clock.advance(11_000);
    expect(() => held.waitUntil(turn())).toThrow(LockLostError);
  });
});

test("Fastify: while the server closes, who waits for a lock is answered with 503, and who holds one may finish", async () => {
  // Otherwise a connection that becomes idle while the server closes stays for 72 s.
  const app = fastify({ keepAliveTimeout: 1 });
  await app.register(holdfast, { url: "memory:fastify-drain" });
  let finish: () => void = () => {};
  const finished = new Promise<void>((resolve) => (finish = resolve));
  const asked: boolean[] = [];
  const answer = (request: FastifyRequest): Promise<string> =>
    finished.then(() => {
      asked.push(heldByFastify(request).hold.draining.aborted);
      return "done";
    });
  app.get("/", { lock: { name: "a", waitMs: 60_000 } }, answer);
  const url = await app.listen({ port: 0, host: "127.0.0.1" });
  const first = fetch(url);
  await expect.poll(() => app.locks.mutex("a").isHeld()).toBe(true);
  const second = fetch(url);
  const waiting = async (): Promise<number | undefined> => (await app.locks.client.state("a"))?.waiters.length;
  await expect.poll(waiting).toBe(1);
  const closed = app.close();
  expect((await second).status).toBe(503);
  finish();
  expect(await (await first).text()).toBe("done");
  await closed;
  expect(asked).toEqual([true]);
});
