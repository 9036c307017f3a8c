import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { fencedFetch, httpGuard, memoryFence, StaleTokenError } from "../../src/fence/index.js";

async function served(answer: RequestListener): Promise<string> {
  const server = createServer(answer);
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

const HOLD = { name: "stock", token: 7 };
const PROBLEM = { "Content-Type": "application/problem+json" };

test.each([
  ["empty", ""],
  ["HTML", "<html><body>Conflict</body></html>"],
  ["null", "null"],
  ["a number", "5"],
  ["a list", "[]"],
  ["half of a document", '{"type":"urn:holdfast:stale'],
  ["of another type", '{"type":"about:blank"}'],
  ["no UTF-8", Buffer.from([0xff, 0xfe, 0x00])],
])("fencedFetch: a 409 whose body is %s is returned as it came", async (_, body) => {
  const url = await served((_request, response) => response.writeHead(409, PROBLEM).end(body));
  const response = await fencedFetch(HOLD, url);
  expect(response.status).toBe(409);
  expect(Buffer.from(await response.arrayBuffer())).toEqual(Buffer.from(body));
});

test("fencedFetch: a 409 without end is not read to its end", async () => {
  let sent = 0;
  const url = await served((_request, response) => {
    response.writeHead(409, PROBLEM);
    const write = (): void => {
      if (response.destroyed) return;
      sent += 16_384;
      if (response.write("x".repeat(16_384))) setImmediate(write);
    };
    response.on("drain", write);
    write();
  });
  const response = await fencedFetch(HOLD, url);
  expect(response.status).toBe(409);
  // What fits into the buffers between them.
  expect(sent).toBeLessThan(32 * 1024 * 1024);
  await response.body?.cancel();
});

test("fencedFetch: a 409 whose body stops in the middle is returned, and so is one whose server hangs up", async () => {
  const silent = await served((_request, response) => void response.writeHead(409, PROBLEM).write('{"type":'));
  const gone = await served((_request, response) => {
    response.writeHead(409, { ...PROBLEM, "Content-Length": "100" });
    response.write('{"type":', () => setImmediate(() => response.destroy()));
  });
  expect((await fencedFetch(HOLD, silent)).status).toBe(409);
  const cut = await fencedFetch(HOLD, gone);
  expect(cut.status).toBe(409);
  await expect(cut.text()).rejects.toThrow();
});

test("fencedFetch: what a guard answers to a stale token is a StaleTokenError, also where the fence is no number", async () => {
  const answers = [{ fence: 9 }, { fence: "9" }, { fence: null }, {}].map((more) =>
    JSON.stringify({ type: "urn:holdfast:stale-token", ...more }),
  );
  const url = await served((_request, response) =>
    response.writeHead(409, { "Content-Type": "Application/Problem+JSON; charset=utf-8" }).end(answers.shift()),
  );
  const fences = [];
  while (answers.length > 0) {
    const error: unknown = await fencedFetch(HOLD, url).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(StaleTokenError);
    fences.push((error as StaleTokenError).fence);
  }
  expect(fences).toEqual([9, undefined, undefined, undefined]);
});

test.each([
  ["a malformed path", () => decodeURIComponent("%zz"), 400],
  ["nothing", () => undefined as unknown as string, 400],
  ["an empty name", async () => "", 400],
  ["a name with a newline", () => "a\nb", 400],
  ["half a surrogate pair", () => "\ud800", 400],
])("httpGuard: %s in place of the lock's name is 400", async (_, lock, status) => {
  const guard = httpGuard({ fence: memoryFence(), lock });
  const thrown: unknown[] = [];
  const url = await served((request, response) => void guard(request, response).catch((error) => thrown.push(error)));
  const response = await fetch(url);
  expect([response.status, await response.json()]).toMatchObject([
    status,
    { type: "urn:holdfast:invalid-name", status },
  ]);
  expect(thrown).toEqual([]);
});

test.each([
  [
    "throws",
    () => {
      throw new TypeError("a bug");
    },
  ],
  ["rejects", async () => Promise.reject(new TypeError("a bug"))],
])(
  "httpGuard: a lock function that %s of its own accord rejects the guard, which the caller handles",
  async (_, lock) => {
    const guard = httpGuard({ fence: memoryFence(), lock });
    const url = await served((request, response) => {
      guard(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)));
    });
    const response = await fetch(url);
    expect([response.status, await response.text()]).toEqual([500, "TypeError: a bug"]);
  },
);
