import { spawn } from "node:child_process";
import { once } from "node:events";
import { connect as connectSocket, type Socket } from "node:net";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { LockLostError, NotHeldError } from "../../src/core/errors.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import { intercept } from "../../src/testing/intercept.js";
import { gate } from "../servers/gate.js";
import { until } from "../servers/process.js";
import { SHARED_STORES, type Store } from "../servers/stores.js";
import { type Call, FRAMEWORKS, type Framework, type Handled, type Served, webServers } from "../servers/web.js";

const serve = await webServers();

type Options = Parameters<typeof serve>[1];

async function server(framework: Framework, options: Options): Promise<Served> {
  const served = await serve(framework, options);
  onTestFinished(() => served.close());
  return served;
}

async function memoryLocks(): Promise<Locks> {
  const locks = await connect(memoryEngine());
  onTestFinished(() => locks.close());
  return locks;
}

const post = (url: string, init: RequestInit = {}): Promise<Response> => fetch(url, { method: "POST", ...init });

/** A client that can hang up: says this much and no more. */
async function sends(url: string, text: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connectSocket(Number(port), hostname);
  // What the server still says to it is nobody's business.
  socket.on("error", () => {}).resume();
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

const REQUEST = (path: string): string => `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`;

const free = (locks: Locks, name: string): Promise<void> =>
  until(`${name} is free`, async () => !(await locks.mutex(name).isHeld()));

const ended = (locks: Locks, event: "queued" | "withdrawn" | "released"): Promise<unknown> =>
  new Promise((fulfil) => locks.on(event, fulfil));

describe.each(FRAMEWORKS)("%s", (framework) => {
  test("the hold is there while the handler runs, and is given back when the response has been sent", async () => {
    const locks = await memoryLocks();
    const seen: unknown[] = [];
    const { url } = await server(framework, {
      locks,
      async handle({ held }) {
        seen.push(held.name, held.token > 0, held.signal.aborted, await locks.mutex("item:1").isHeld());
        return { status: 201, body: "bought" };
      },
    });
    const released = ended(locks, "released");
    const response = await post(`${url}/lock/1`);
    expect([response.status, await response.text()]).toEqual([201, "bought"]);
    expect(seen).toEqual(["item:1", true, false, true]);
    await released;
    await free(locks, "item:1");
  });

  test("a handler may take its own lock again, and does not wait for itself", async () => {
    const locks = await memoryLocks();
    const { url } = await server(framework, {
      locks,
      handle: async ({ held }) => ({
        body: await locks.mutex("item:1").using((hold) => String(hold.token === held.token)),
      }),
    });
    expect(await (await post(`${url}/lock/1`)).text()).toBe("true");
  });

  test("one that throws gives the lock back", async () => {
    const locks = await memoryLocks();
    const { url } = await server(framework, { locks, handle: () => Promise.reject(new Error("no")) });
    expect((await post(`${url}/lock/1`)).status).toBe(500);
    await free(locks, "item:1");
  });

  test("one that never answers keeps the lock until its client goes away, and is told so", async () => {
    const locks = await memoryLocks();
    const entered = gate<Call>();
    const { url } = await server(framework, {
      locks,
      handle: (call) => (entered.open(call), new Promise<Handled>(() => {})),
    });
    const client = await sends(url, REQUEST("/lock/1"));
    const { held } = await entered.passed;
    expect(await locks.mutex("item:1").isHeld()).toBe(true);
    client.destroy();
    await free(locks, "item:1");
    expect(held.signal.aborted).toBe(true);
    expect(() => held.hold.throwIfLost()).toThrow(NotHeldError);
    expect(() => held.waitUntil(Promise.resolve())).toThrow(NotHeldError);
  });

  test("what waitUntil was given keeps the lock when the client has gone", async () => {
    const locks = await memoryLocks();
    const entered = gate<Call>();
    const work = gate();
    const { url } = await server(framework, {
      locks,
      handle({ held, ...call }) {
        held.waitUntil(work.passed);
        entered.open({ held, ...call });
        return new Promise<Handled>(() => {});
      },
    });
    const client = await sends(url, REQUEST("/lock/1"));
    const { held } = await entered.passed;
    client.destroy();
    await once(held.signal, "abort");
    expect(held.hold.state).toBe("held");
    work.open();
    await free(locks, "item:1");
  });

  test("a response that is sent piece by piece keeps the lock to its end", async () => {
    const locks = await memoryLocks();
    const rest = gate();
    async function* pieces(): AsyncGenerator<Uint8Array> {
      yield Buffer.from("first,");
      await rest.passed;
      yield Buffer.from("last");
    }
    const { Readable } = await import("node:stream");
    const { url } = await server(framework, { locks, handle: async () => ({ body: Readable.from(pieces()) }) });
    const response = await post(`${url}/lock/1`);
    const reader = response.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("first,");
    expect(await locks.mutex("item:1").isHeld()).toBe(true);
    rest.open();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toBe("last");
    await free(locks, "item:1");
  });

  test.each([409, 423] as const)(
    "busy is answered with %i and Retry-After, and tells nobody's name",
    async (busyStatus) => {
      const locks = await memoryLocks();
      const { url } = await server(framework, {
        locks,
        lock: { waitMs: 0, busyStatus, retryAfterSeconds: 7 },
        handle: async () => ({}),
      });
      const hold = await locks.mutex("item:secret").acquire();
      const response = await post(`${url}/lock/secret`);
      expect([response.status, response.headers.get("retry-after")]).toEqual([busyStatus, "7"]);
      expect(response.headers.get("content-type")).toMatch(/^application\/problem\+json/);
      const text = await response.text();
      expect(JSON.parse(text)).toMatchObject({ type: "urn:holdfast:busy", status: busyStatus });
      expect(text).not.toMatch(/secret|pid|\d{4,}/);
      await hold.release();
      expect((await post(`${url}/lock/secret`)).status).toBe(200);
    },
  );

  test("pitfall 17: a client that goes away while it waits leaves the queue, and its handler is not run", async () => {
    const locks = await memoryLocks();
    const ids: string[] = [];
    const { url } = await server(framework, {
      locks,
      lock: { waitMs: 600_000 },
      handle: async ({ id }) => (ids.push(id), {}),
    });
    const hold = await locks.mutex("item:1").acquire();
    const queued = ended(locks, "queued");
    const withdrawn = ended(locks, "withdrawn");
    const client = await sends(url, REQUEST("/lock/1"));
    await queued;
    client.destroy();
    await withdrawn;
    await hold.release();
    await free(locks, "item:1");
    expect(ids).toEqual([]);
    expect((await post(`${url}/lock/1`)).status).toBe(200);
  });

  test("requests behind one another on a connection that breaks leave the queue too, and none keeps a lock", async () => {
    const locks = await memoryLocks();
    const entered = gate<Call>();
    const { url } = await server(framework, {
      locks,
      lock: { waitMs: 600_000 },
      handle: (call) => (entered.open(call), new Promise<Handled>(() => {})),
    });
    // The second response of a connection has no socket while the first is under way: it is told of no end by itself.
    const client = await sends(url, REQUEST("/lock/first") + REQUEST("/lock/second"));
    await entered.passed;
    await until("both are held", async () => await locks.mutex("item:second").isHeld());
    client.destroy();
    await Promise.all([free(locks, "item:first"), free(locks, "item:second")]);
  });

  test("a lock that is lost while the request is handled aborts its signal", async () => {
    const locks = await connect(intercept(memoryEngine(), { renew: () => Promise.reject(new Error("away")) }));
    onTestFinished(() => locks.close());
    const { url } = await server(framework, {
      locks,
      lock: { leaseMs: 200 },
      async handle({ held }) {
        await once(held.signal, "abort");
        return { status: 503, body: String(held.signal.reason instanceof LockLostError) };
      },
    });
    const response = await post(`${url}/lock/1`);
    expect([response.status, await response.text()]).toEqual([503, "true"]);
  });

  test("no more requests wait than maxWaiting, whatever their names; the next is answered with 503 at once", async () => {
    const locks = await memoryLocks();
    const { url } = await server(framework, {
      locks,
      lock: { waitMs: 600_000, maxWaiting: 50 },
      handle: async () => ({}),
    });
    const hold = await locks.mutex("item:1").acquire();
    let queued = 0;
    locks.on("queued", () => (queued += 1));
    const waiting = Array.from({ length: 50 }, () => post(`${url}/lock/1`));
    await until("fifty wait", () => queued === 50);
    const refused = await Promise.all(Array.from({ length: 50 }, (_, n) => post(`${url}/lock/${n}`)));
    expect(new Set(refused.map(({ status }) => status))).toEqual(new Set([503]));
    expect(refused[0]?.headers.get("retry-after")).toBe("1");
    await hold.release();
    const served = await Promise.all(waiting);
    expect(new Set(served.map(({ status }) => status))).toEqual(new Set([200]));
    expect((await post(`${url}/lock/1`)).status).toBe(200);
  });

  test("names that no lock can have are the client's fault", async () => {
    const locks = await memoryLocks();
    const { url } = await server(framework, { locks, handle: async ({ id }) => ({ body: id }) });
    const hostile = [
      "x".repeat(600),
      "x".repeat(9_000),
      "%E2%82%AC".repeat(300),
      "a%0d%0aSet-Cookie:%20b",
      "a%00",
      "%C2%85",
    ];
    for (const id of hostile) {
      const response = await post(`${url}/lock/${id}`);
      expect([id.slice(0, 20), response.status, response.headers.get("set-cookie")]).toEqual([
        id.slice(0, 20),
        400,
        null,
      ]);
    }
    expect(await (await post(`${url}/lock/${"x".repeat(507)}`)).text()).toBe("x".repeat(507));
  });

  test("a store that is away, and locks that were closed, are answered with 503", async () => {
    const locks = await connect(intercept(memoryEngine(), { claim: () => Promise.reject(new Error("secret")) }));
    const { url } = await server(framework, { locks, lock: { waitMs: 50 }, handle: async () => ({}) });
    const response = await post(`${url}/lock/1`);
    expect([response.status, response.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(await response.text()).not.toContain("secret");
    await locks.close();
    expect((await post(`${url}/lock/1`)).status).toBe(503);
  });

  test("another recipe than a mutex: as many requests at once as there are permits", async () => {
    const locks = await memoryLocks();
    const both = gate();
    let inside = 0;
    const { url } = await server(framework, {
      locks,
      lock: { waitMs: 0, recipe: (name) => locks.semaphore(name, 2) },
      async handle() {
        inside += 1;
        if (inside === 2) both.open();
        await both.passed;
        return {};
      },
    });
    const served = await Promise.all([post(`${url}/lock/1`), post(`${url}/lock/1`)]);
    expect(served.map(({ status }) => status)).toEqual([200, 200]);
  });
});

const STORES = {
  memory: async (): Promise<Store> => ({ url: "memory:web-test", stop: async () => {} }),
  ...SHARED_STORES,
};

describe.each(Object.entries(STORES))("on %s", (name, start) => {
  let store: Store;
  const opened: Locks[] = [];

  beforeAll(async () => {
    store = await start();
  });
  afterAll(async () => {
    await Promise.all(opened.map((locks) => locks.close()));
    await store?.stop();
  });

  async function open(): Promise<Locks> {
    const locks = await connect(store.url);
    opened.push(locks);
    return locks;
  }

  test.each(FRAMEWORKS)("200 buyers at two %s servers buy 100 items, one at a time", async (framework) => {
    const both = await Promise.all([open(), open()]);
    let [stock, inside, overlaps] = [100, 0, 0];
    const tokens: number[] = [];
    const handle = async ({ held }: Call): Promise<Handled> => {
      inside += 1;
      if (inside > 1) overlaps += 1;
      tokens.push(held.token);
      const left = stock;
      // Where another one would come in between.
      await new Promise((resolve) => setImmediate(resolve));
      if (left > 0) stock = left - 1;
      inside -= 1;
      return { status: left > 0 ? 200 : 410 };
    };
    const lock = { waitMs: 600_000 };
    const servers = await Promise.all(both.map((locks) => server(framework, { locks, lock, handle })));
    const buyers = Array.from({ length: 200 }, (_, n) => post(`${servers[n % 2]?.url}/lock/${framework}`));
    const statuses = (await Promise.all(buyers)).map(({ status }) => status);
    const count = (wanted: number): number => statuses.filter((status) => status === wanted).length;
    expect({ sold: count(200), soldOut: count(410), stock, overlaps }).toEqual({
      sold: 100,
      soldOut: 100,
      stock: 0,
      overlaps: 0,
    });
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    expect(new Set(tokens).size).toBe(200);
  });

  // What is in the memory of a process dies with it.
  test.each(name === "memory" ? [] : FRAMEWORKS)(
    "a %s server that is killed while it holds: the next holder gets the lock, with a higher token",
    async (framework) => {
      const locks = await open();
      const { url } = await server(framework, {
        locks,
        lock: { waitMs: 600_000 },
        handle: async ({ held }) => ({ body: String(held.token) }),
      });
      const program = resolve(import.meta.dirname, "web-server.mjs");
      const settings = { framework, url: store.url, lock: { leaseMs: 1_000 } };
      const child = spawn(process.execPath, [program, JSON.stringify(settings)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      const address = String((await lines.next()).value);
      const cut = post(`${address}/lock/killed-${framework}`).then(
        () => "answered",
        () => "cut",
      );
      const token = Number((await lines.next()).value);
      const queued = ended(locks, "queued");
      const next = post(`${url}/lock/killed-${framework}`);
      await queued;
      child.kill("SIGKILL");
      expect(await cut).toBe("cut");
      const response = await next;
      expect(response.status).toBe(200);
      expect(Number(await response.text())).toBeGreaterThan(token);
    },
  );
});
