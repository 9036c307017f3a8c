import { spawn } from "node:child_process";
import { connect as connectSocket } from "node:net";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { memoryEngine } from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import { type AnswerStore, memoryAnswers, type StoredAnswer } from "../../src/web/answers.js";
import { cellAnswers } from "../../src/web/cell-answers.js";
import { until } from "../servers/process.js";
import { SHARED_STORES, type Store } from "../servers/stores.js";
import { type Call, FRAMEWORKS, type Framework, type Handled, webServers } from "../servers/web.js";

const serve = await webServers();

type Idempotency = NonNullable<Parameters<typeof serve>[1]["idempotency"]>;

async function memoryLocks(): Promise<Locks> {
  const locks = await connect(memoryEngine());
  onTestFinished(() => locks.close());
  return locks;
}

async function payServer(
  framework: Framework,
  locks: Locks,
  handle: (call: Call) => Promise<Handled>,
  options: Partial<Idempotency> = {},
): Promise<string> {
  const idempotency = { answers: memoryAnswers(), scope: () => "one user", ...options };
  const served = await serve(framework, { locks, idempotency, handle });
  onTestFinished(() => served.close());
  return `${served.url}/pay`;
}

/** What a client sees of an answer. */
type Seen = {
  readonly status: number;
  readonly replayed: string | null;
  readonly text: string;
  readonly headers: Headers;
};

async function pay(url: string, key: string | undefined, body: unknown = { amount: 5 }): Promise<Seen> {
  const keyed = key === undefined ? {} : { "Idempotency-Key": key };
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...keyed },
    body: JSON.stringify(body),
  });
  const { status, headers } = response;
  return { status, headers, replayed: headers.get("idempotency-replayed"), text: await response.text() };
}

const kindOf = ({ text }: Seen): unknown => (JSON.parse(text) as { type?: unknown }).type;

/** Counts the payments, each with a number of its own. */
function counting(more: (call: Call) => Promise<Handled> | Handled = () => ({})): {
  count: number;
  readonly handle: (call: Call) => Promise<Handled>;
} {
  const counter = {
    count: 0,
    async handle(call: Call): Promise<Handled> {
      counter.count += 1;
      const body = `payment ${counter.count}`;
      const headers = { "Content-Type": "text/plain", Location: "/payments/1", "Set-Cookie": "session=1" };
      return { status: 201, headers, body, ...(await more(call)) };
    },
  };
  return counter;
}

describe.each(FRAMEWORKS)("%s", (framework) => {
  test("the first request with a key is handled, and again it gets the same answer, without the cookies", async () => {
    const payments = counting();
    const url = await payServer(framework, await memoryLocks(), payments.handle);
    const first = await pay(url, "key-1");
    expect([first.status, first.text, first.replayed]).toEqual([201, "payment 1", null]);
    expect(first.headers.get("set-cookie")).toBe("session=1");
    // Quoted, as the draft has it, it is the same key.
    for (const key of ["key-1", '"key-1"']) {
      const again = await pay(url, key);
      expect([again.status, again.text, again.replayed]).toEqual([201, "payment 1", "true"]);
      expect(again.headers.get("location")).toBe("/payments/1");
      expect(again.headers.get("content-type")).toMatch(/^text\/plain/);
      expect(again.headers.get("set-cookie")).toBeNull();
    }
    expect((await pay(url, "key-2")).text).toBe("payment 2");
    expect(payments.count).toBe(2);
  });

  test("twenty at once: one is handled, the others wait and get its answer", async () => {
    const payments = counting();
    const url = await payServer(framework, await memoryLocks(), payments.handle, { waitMs: 600_000 });
    const all = await Promise.all(Array.from({ length: 20 }, () => pay(url, "key")));
    expect(new Set(all.map(({ status, text }) => `${status} ${text}`))).toEqual(new Set(["201 payment 1"]));
    expect(all.filter(({ replayed }) => replayed === null)).toHaveLength(1);
    expect(payments.count).toBe(1);
  });

  test("a client that gives up and asks again: the first request goes on, and its answer is the answer", async () => {
    let go: () => void = () => {};
    const gone = new Promise<void>((resolve) => (go = resolve));
    let entered: (call: Call) => void = () => {};
    const first = new Promise<Call>((resolve) => (entered = resolve));
    const payments = counting((call) => (entered(call), gone.then(() => ({}))));
    const locks = await memoryLocks();
    const url = await payServer(framework, locks, payments.handle, { waitMs: 600_000 });
    const { port } = new URL(url);
    const client = connectSocket(Number(port), "127.0.0.1");
    client.on("error", () => {}).resume();
    const [type, key] = ["Content-Type: application/json\r\nContent-Length: 12", "Idempotency-Key: key"];
    client.write(`POST /pay HTTP/1.1\r\nHost: x\r\n${type}\r\n${key}\r\n\r\n{"amount":5}`);
    const { held } = await first;
    client.destroy();
    const queued = new Promise((resolve) => locks.on("queued", resolve));
    const again = pay(url, "key");
    await queued;
    expect([held.hold.state, held.signal.aborted]).toEqual(["held", false]);
    go();
    expect(await again).toMatchObject({ status: 201, text: "payment 1", replayed: "true" });
    expect(payments.count).toBe(1);
  });

  test("told not to wait, a concurrent one is answered with 409 and Retry-After", async () => {
    let go: () => void = () => {};
    const gone = new Promise<void>((resolve) => (go = resolve));
    const payments = counting(() => gone.then(() => ({})));
    const url = await payServer(framework, await memoryLocks(), payments.handle, { waitMs: 0 });
    const first = pay(url, "key");
    await until("it is handled", () => payments.count === 1);
    const second = await pay(url, "key");
    expect([second.status, kindOf(second), second.headers.get("retry-after")]).toEqual([409, "urn:holdfast:busy", "1"]);
    go();
    expect((await first).status).toBe(201);
  });

  test("the same key with another payload is refused, and the same key of somebody else is another key", async () => {
    const payments = counting();
    let user = "ann";
    const url = await payServer(framework, await memoryLocks(), payments.handle, { scope: () => user });
    await pay(url, "key", { amount: 5 });
    const other = await pay(url, "key", { amount: 6 });
    expect([other.status, kindOf(other)]).toEqual([422, "urn:holdfast:key-reused"]);
    expect((await pay(`${url}?to=me`, "key", { amount: 5 })).status).toBe(422);
    user = "bob";
    expect((await pay(url, "key", { amount: 5 })).text).toBe("payment 2");
  });

  test("without a key: 400 where one is required, otherwise handled each time", async () => {
    const payments = counting();
    const locks = await memoryLocks();
    const strict = await payServer(framework, locks, payments.handle, { required: true });
    const missing = await pay(strict, undefined);
    expect([missing.status, kindOf(missing)]).toEqual([400, "urn:holdfast:missing-key"]);
    expect(payments.count).toBe(0);
    const lenient = await payServer(framework, locks, payments.handle);
    // The handler of these tests asks for its hold, and is told that there is none.
    expect((await pay(lenient, undefined)).text).toMatch(/holds no lock/);
  });

  test("keys that are none are answered with 400, and nothing of them comes back", async () => {
    const payments = counting();
    const url = await payServer(framework, await memoryLocks(), payments.handle);
    const hostile = [
      "x".repeat(256),
      "x".repeat(10_000),
      "a b",
      "a,b",
      '"',
      '""',
      'a"b',
      '"a"b"',
      "caf\u00e9",
      '"caf\u00e9"',
    ];
    for (const key of hostile) {
      const seen = await pay(url, key);
      expect([key.slice(0, 9), seen.status, kindOf(seen)]).toEqual([key.slice(0, 9), 400, "urn:holdfast:invalid-key"]);
    }
    // Line breaks do not come this far: Node.js refuses to send, and to read, such a header.
    for (const key of ["x".repeat(255), '"a \\" b"', "../../etc/passwd", "__proto__", "%0d%0aSet-Cookie:x"]) {
      const seen = await pay(url, key);
      expect([key.slice(0, 9), seen.status]).toEqual([key.slice(0, 9), 201]);
      expect([...seen.headers.values()].join()).not.toContain(key);
      expect(await pay(url, key)).toMatchObject({ status: 201, replayed: "true", text: seen.text });
    }
  });

  test("an answer from 500 on is not kept: the request is handled again", async () => {
    const payments = counting(() => (payments.count === 1 ? { status: 503 } : {}));
    const url = await payServer(framework, await memoryLocks(), payments.handle);
    expect((await pay(url, "key")).status).toBe(503);
    expect(await pay(url, "key")).toMatchObject({ status: 201, text: "payment 2", replayed: null });
    const failing = counting(() => Promise.reject(new Error("no")));
    const other = await payServer(framework, await memoryLocks(), failing.handle);
    expect((await pay(other, "key")).status).toBe(500);
    expect((await pay(other, "key")).status).toBe(500);
    expect(failing.count).toBe(2);
  });

  test("an answer in pieces is kept as a whole; one that is too long goes out, and is not done again", async () => {
    const long = "x".repeat(50_000);
    const payments = counting(({ body }) => {
      const pieces = (body as { amount: number }).amount === 5 ? ["one, ", "two"] : [long, long, "end"];
      return {
        body: Readable.from(
          pieces.map((piece) => Buffer.from(piece)),
          { objectMode: false },
        ),
      };
    });
    const url = await payServer(framework, await memoryLocks(), payments.handle);
    expect(await pay(url, "short")).toMatchObject({ status: 201, text: "one, two" });
    expect(await pay(url, "short")).toMatchObject({ status: 201, text: "one, two", replayed: "true" });
    expect(await pay(url, "long", { amount: 6 })).toMatchObject({ status: 201, text: `${long}${long}end` });
    const again = await pay(url, "long", { amount: 6 });
    expect([again.status, kindOf(again)]).toEqual([409, "urn:holdfast:answer-not-kept"]);
    expect(payments.count).toBe(2);
  });

  test("an answer is kept before it is sent; if that fails it is sent all the same, with a warning", async () => {
    const locks = await memoryLocks();
    const memory = memoryAnswers();
    let fails = false;
    const order: string[] = [];
    const answers: AnswerStore = {
      ...memory,
      async put(key, answer) {
        order.push("kept");
        if (fails) throw new Error("disk full");
        return memory.put(key, answer);
      },
    };
    const payments = counting();
    const url = await payServer(framework, locks, payments.handle, { answers });
    await pay(url, "key").then(() => order.push("answered"));
    expect(order).toEqual(["kept", "answered"]);
    fails = true;
    const warned = new Promise<{ message: string }>((resolve) => locks.on("warning", resolve));
    expect((await pay(url, "other")).text).toBe("payment 2");
    expect((await warned).message).toContain("handled again");
    expect((await pay(url, "other")).text).toBe("payment 3");
  });

  test("answers that cannot be read: 503 when their store is away, and the handler is not run", async () => {
    const payments = counting();
    const away = new EngineUnavailableError("table", "reading", new Error("secret"));
    const answers: AnswerStore = { ...memoryAnswers(), get: () => Promise.reject(away) };
    const locks = await memoryLocks();
    const url = await payServer(framework, locks, payments.handle, { answers });
    const seen = await pay(url, "key");
    expect([seen.status, seen.headers.get("retry-after")]).toEqual([503, "1"]);
    expect(seen.text).not.toContain("secret");
    expect(payments.count).toBe(0);
  });

  test("whoever lost the lock, and was overtaken, does not replace the newer answer: the client is sent to that", async () => {
    const memory = memoryAnswers();
    const newer: Partial<StoredAnswer> = { status: 200, headers: [], body: Buffer.from("newer") };
    const answers: AnswerStore = {
      ...memory,
      async put(key, answer) {
        await memory.put(key, { ...answer, ...newer, token: answer.token + 1 });
        return memory.put(key, answer);
      },
    };
    const url = await payServer(framework, await memoryLocks(), counting().handle, { answers });
    const late = await pay(url, "key");
    expect([late.status, kindOf(late), late.headers.get("location")]).toEqual([409, "urn:holdfast:superseded", null]);
    expect(await pay(url, "key")).toMatchObject({ status: 200, text: "newer", replayed: "true" });
  });
});

describe.each(Object.entries(SHARED_STORES))("on %s, with the answers in cells", (_, start) => {
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

  test.each(FRAMEWORKS)(
    "two %s servers share them: forty payments, each sent four times at once, are made once",
    async (framework) => {
      const payments = counting();
      const urls = await Promise.all(
        [await open(), await open()].map((locks) =>
          // Few cells, so that the payments meet in them.
          payServer(framework, locks, payments.handle, { answers: cellAnswers(locks, { slots: 4 }), waitMs: 600_000 }),
        ),
      );
      const all = await Promise.all(
        Array.from({ length: 160 }, (_, n) => pay(urls[n % 2] as string, `${framework}-${n % 40}`, { amount: n % 40 })),
      );
      expect(new Set(all.map(({ status }) => status))).toEqual(new Set([201]));
      expect(payments.count).toBe(40);
      for (let n = 0; n < 40; n += 1) {
        expect(new Set(all.filter((_, at) => at % 40 === n).map(({ text }) => text)).size).toBe(1);
      }
    },
  );

  test.each(FRAMEWORKS)(
    "a %s server that dies between doing and keeping: it is done again, under a higher token",
    async (framework) => {
      const locks = await open();
      const tokens: number[] = [];
      const payments = counting(({ held }) => (tokens.push(held.token), {}));
      const url = await payServer(framework, locks, payments.handle, { answers: cellAnswers(locks), waitMs: 600_000 });
      const program = resolve(import.meta.dirname, "web-server.mjs");
      const settings = { framework, url: store.url, idempotency: { leaseMs: 1_000 } };
      const child = spawn(process.execPath, [program, JSON.stringify(settings)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      onTestFinished(() => void child.kill("SIGKILL"));
      const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
      const address = String((await lines.next()).value);
      const cut = pay(`${address}/pay`, `dies-${framework}`).then(
        () => "answered",
        () => "cut",
      );
      const token = Number((await lines.next()).value);
      child.kill("SIGKILL");
      expect(await cut).toBe("cut");
      const again = await pay(url, `dies-${framework}`);
      expect([again.status, again.replayed, payments.count]).toEqual([201, null, 1]);
      expect(tokens[0]).toBeGreaterThan(token);
    },
  );
});
