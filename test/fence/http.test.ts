import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import {
  expressGuard,
  type FastifyReplyLike,
  fastifyGuard,
  fencedFetch,
  honoGuard,
  httpGuard,
  InvalidTokenError,
  memoryFence,
  StaleTokenError,
  tokenHeaders,
  tokenOf,
} from "../../src/fence/index.js";

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

const STALE = '{"type":"urn:holdfast:stale-token","fence":9}';

test.each([
  [200, PROBLEM],
  [400, PROBLEM],
  [408, PROBLEM],
  [410, PROBLEM],
  [500, PROBLEM],
  [409, { "Content-Type": "application/json" }],
  [409, { "Content-Type": "text/plain; of=application/problem+json" }],
  [409, {}],
])("fencedFetch: only a 409 with a problem document is a refusal; %s with %o is returned", async (status, headers) => {
  const url = await served((_request, response) => response.writeHead(status, headers).end(STALE));
  const response = await fencedFetch(HOLD, url);
  expect([response.status, await response.text()]).toEqual([status, STALE]);
});

test("fencedFetch: a 409 without a body is returned", async () => {
  const url = await served((_request, response) => response.writeHead(409, PROBLEM).end());
  const response = await fencedFetch(HOLD, url, { method: "HEAD" });
  expect([response.status, response.body]).toEqual([409, null]);
});

test("fencedFetch: a problem document is read up to 64 KiB and no further", async () => {
  // The limit of time must not come first on a busy machine.
  vi.useFakeTimers({ toFake: ["setTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const lengths = [65_535, 65_536, 65_537];
  const url = await served((request, response) =>
    response.writeHead(409, PROBLEM).end(STALE.padEnd(Number(request.url?.slice(1)), " ")),
  );
  const refused = lengths.map((length) =>
    fencedFetch(HOLD, url + length).then(
      async (response) => (await response.text()).length,
      (error: unknown) => error instanceof StaleTokenError,
    ),
  );
  expect(await Promise.all(refused)).toEqual([true, true, 65_537]);
});

test("tokenHeaders: the floor and the set are sent where they say more than the token", () => {
  const named = { "Holdfast-Token": "7", "Holdfast-Lock": "a%2Fb" };
  expect(tokenHeaders({ name: "a/b", token: 7 })).toEqual(named);
  expect(tokenHeaders({ name: "a/b", token: 7, floor: 7 })).toEqual(named);
  expect(tokenHeaders({ name: "other", token: 7 }, "a/b")).toEqual(named);
  expect(tokenHeaders({ name: "a/b", token: 7, floor: 5 })).toEqual({ ...named, "Holdfast-Floor": "5" });
  const sets = { "Holdfast-Floor": "5", "Holdfast-Live": "5 7" };
  expect(tokenHeaders({ name: "a/b", token: 7, floor: 5, live: [5, 7] })).toEqual({ ...named, ...sets });
  // How far ahead it may be is for the server to say.
  expect(tokenHeaders({ name: "a/b", token: 9_007_199_254_740_990 })["Holdfast-Token"]).toBe("9007199254740990");
});

type Headers = Readonly<Record<string, string>>;
/** What became of a request: it went on, was answered, or the guard threw. */
type Outcome = {
  readonly status?: number;
  readonly type?: string | null;
  readonly body?: unknown;
  readonly error?: unknown;
};
type Ask = (headers: Headers) => Promise<{ readonly wentOn: object | null; readonly outcome: Outcome }>;
type Parts = { readonly fence: ReturnType<typeof memoryFence>; readonly lock: () => string };

/** The same requests through each of the guards, by the calls that their framework makes of them. */
const GUARDS: Readonly<Record<string, (parts: Parts) => Ask>> = {
  http: (parts) => {
    const guard = httpGuard(parts);
    return async (headers) => {
      const [request, reply] = [{ headers }, new Reply()];
      const mayGoOn = await guard(request, reply).catch((error: unknown) => reply.fail(error));
      return { wentOn: mayGoOn ? request : null, outcome: reply.outcome };
    };
  },
  express: (parts) => {
    const guard = expressGuard(parts);
    return (headers) =>
      new Promise((resolve) => {
        const [request, reply] = [{ headers }, new Reply()];
        reply.ended = () => resolve({ wentOn: null, outcome: reply.outcome });
        guard(request, reply, (error) => {
          if (error !== undefined) reply.fail(error);
          resolve({ wentOn: error === undefined ? request : null, outcome: reply.outcome });
        });
      });
  },
  fastify: (parts) => {
    const guard = fastifyGuard(parts);
    return async (headers) => {
      const [request, reply] = [{ headers }, new Reply()];
      const answer = await guard(request, reply).catch((error: unknown) => (reply.fail(error), reply));
      return { wentOn: answer === undefined ? request : null, outcome: reply.outcome };
    };
  },
  hono: (parts) => {
    const guard = honoGuard(parts);
    return async (headers) => {
      const [context, reply] = [{ req: { raw: new Request("http://here/", { headers }) } }, new Reply()];
      let wentOn: object | null = null;
      const next = async (): Promise<void> => void (wentOn = context.req.raw);
      const response = await guard(context, next).catch((error: unknown) => void reply.fail(error));
      if (response !== undefined) {
        reply.writeHead(response.status, { "Content-Type": response.headers.get("content-type") ?? "" });
        reply.end(await response.text());
      }
      return { wentOn, outcome: reply.outcome };
    };
  },
};

/** A response as node:http, Express and Fastify have it. */
class Reply implements FastifyReplyLike {
  outcome: Outcome = {};
  ended = (): void => {};
  fail(error: unknown): false {
    this.outcome = { error };
    return false;
  }
  writeHead(status: number, headers: Headers): void {
    const length = headers["Content-Length"];
    this.outcome = { status, type: headers["Content-Type"] ?? null, ...(length === undefined ? {} : { body: length }) };
  }
  end(text: string): void {
    const { body } = this.outcome;
    if (body !== undefined) expect(body).toBe(String(Buffer.byteLength(text)));
    this.outcome = { ...this.outcome, body: JSON.parse(text) };
    this.ended();
  }
  code(status: number): this {
    this.outcome = { ...this.outcome, status };
    return this;
  }
  type(type: string): this {
    this.outcome = { ...this.outcome, type };
    return this;
  }
  send(text: string): this {
    this.outcome = { ...this.outcome, body: JSON.parse(text) };
    return this;
  }
}

const NAME = "café";
const shown = (token: string, more: Headers = {}): Headers => ({
  "holdfast-token": token,
  "holdfast-lock": encodeURIComponent(NAME),
  ...more,
});

describe.each(Object.entries(GUARDS))("the guard for %s", (_, guarded) => {
  const lock = (): string => NAME;
  const refusal = (status: number, type: string, more: object = {}): object => ({
    wentOn: null,
    outcome: {
      status,
      type: "application/problem+json",
      body: {
        type: `urn:holdfast:${type}`,
        status,
        title: expect.stringMatching(/./),
        detail: expect.stringMatching(/./),
        ...more,
      },
    },
  });

  test("lets a token through that is not stale, and keeps it for the write", async () => {
    const ask = guarded({ fence: memoryFence(), lock });
    const sets = { "holdfast-floor": "5", "holdfast-live": "5 7" };
    const floored = { "holdfast-floor": "5" };
    for (const [headers, token] of [
      [shown("7", sets), { token: 7, floor: 5, live: [5, 7] }],
      [shown("7", floored), { token: 7, floor: 5 }],
      [shown("9"), { token: 9 }],
    ] as const) {
      const { wentOn, outcome } = await ask(headers);
      expect(outcome).toEqual({});
      expect(tokenOf(wentOn ?? {})).toEqual(token);
    }
    expect(await ask(shown("8"))).toEqual(refusal(409, "stale-token", { lock: NAME, token: 8, fence: 9 }));
    expect(() => tokenOf({})).toThrow(InvalidTokenError);
  });

  test("answers what was not shown, or not well", async () => {
    const ask = guarded({ fence: memoryFence(), lock });
    const { "holdfast-token": token = "", "holdfast-lock": named = "" } = shown("7");
    const missing = refusal(428, "missing-token", { lock: NAME });
    expect(await ask({})).toEqual(missing);
    expect(await ask({ "holdfast-token": token })).toEqual(missing);
    expect(await ask({ "holdfast-lock": named })).toEqual(missing);
    expect(await ask({ ...shown("7"), "holdfast-lock": "another" })).toEqual(
      refusal(400, "wrong-lock", { lock: NAME }),
    );
    const invalid = refusal(400, "invalid-token");
    for (const wrong of ["", "x", "7, 8", "-7", "7x", "x7", "12345678901234567"]) {
      expect(await ask(shown(wrong))).toEqual(invalid);
      expect(await ask(shown("7", { "holdfast-floor": wrong }))).toEqual(invalid);
      expect(await ask(shown("7", { "holdfast-live": wrong }))).toEqual(invalid);
    }
    expect(await guarded({ fence: memoryFence(), lock: () => "a\nb" })(shown("7"))).toEqual(
      refusal(400, "invalid-name"),
    );
    expect(await guarded({ fence: memoryFence(), lock: () => decodeURIComponent("%zz") })(shown("7"))).toEqual(
      refusal(400, "invalid-name"),
    );
  });

  test("does not let a request through when the fence cannot be asked", async () => {
    const down = new TypeError("the store is down");
    const fence = { ...memoryFence(), accept: () => Promise.reject(down) };
    const bug = (): string => {
      throw down;
    };
    for (const parts of [
      { fence, lock },
      { fence: memoryFence(), lock: bug },
    ]) {
      expect(await guarded(parts)(shown("7"))).toEqual({ wentOn: null, outcome: { error: down } });
    }
  });
});
