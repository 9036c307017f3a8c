import { describe, expect, test } from "vitest";
import type { Granted } from "../../src/core/engine.js";
import type { NameState } from "../../src/core/inspect.js";
import { liveView } from "../../src/live/index.js";
import { get, LOCAL, liveRig, postRelease, Reader } from "./live-rig.js";
import { never, watch } from "./rig.js";

describe("without authorize, only this machine is answered", () => {
  test.each([
    ["IPv4", { remoteAddress: "127.0.0.1" }, "localhost:3000", 200],
    ["another address of the loopback network", { remoteAddress: "127.8.9.10" }, "127.8.9.10", 200],
    ["IPv6", { remoteAddress: "::1" }, "[::1]:3000", 200],
    ["IPv4 in IPv6", { remoteAddress: "::ffff:127.0.0.1" }, "LOCALHOST", 200],
    ["another machine", { remoteAddress: "192.168.0.7" }, "localhost:3000", 403],
    ["another machine, whose address looks like ours", { remoteAddress: "::ffff:10.127.0.1" }, "localhost", 403],
    ["nobody knows from where: a socket without an address", {}, "localhost:3000", 403],
    ["a foreign Host: a name that was made to point here", LOCAL, "evil.example:3000", 403],
    ["a Host that begins like ours", LOCAL, "localhost.evil.example", 403],
    ["a Host that begins like our address", LOCAL, "127.0.0.1.evil.example", 403],
    ["a Host that ends like ours", LOCAL, "evil.localhost:3000", 403],
    ["a Host that ends like our address", LOCAL, "1127.0.0.1", 403],
    ["a Host with a user in it", LOCAL, "localhost@evil.example", 403],
    ["an empty Host", LOCAL, "", 403],
  ])("%s", async (_, connection, host, status) => {
    const { view, reads } = await liveRig();
    for (const path of ["/", "/events", "/style.css"]) {
      const answer = await get(view, path, { host }, connection);
      expect(answer.status).toBe(status);
      await answer.body?.cancel();
    }
    if (status === 403) expect(reads.all).toBe(0);
  });

  test.each([
    ...[
      "Forwarded",
      "Via",
      "X-Forwarded",
      "X-Forwarded-For",
      "X-Forwarded-Host",
      "X-Forwarded-Proto",
      "X-Forwarded-Port",
    ],
    ...["X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "CF-Connecting-IP", "True-Client-IP"],
  ])("what a proxy on this machine passes on is not from this machine: %s", async (header) => {
    const { view } = await liveRig();
    expect((await get(view, "/", { [header]: "whatever" })).status).toBe(403);
  });

  test("a handler that was called without the connection refuses, and says what to do", async () => {
    const { view } = await liveRig();
    const answer = await view(new Request("http://localhost/"));
    expect(answer.status).toBe(403);
    expect(await answer.text()).toContain("authorize");
  });
});

describe("authorize decides alone", () => {
  test.each([
    ["read", 200],
    ["release", 200],
    [null, 403],
    [undefined, 403],
    [false, 403],
    [true, 403],
    ["READ", 403],
    [{}, 403],
  ])("%j", async (permission, status) => {
    const { view } = await liveRig({ authorize: async () => permission as "read" });
    const from = { remoteAddress: "203.0.113.9" };
    expect((await get(view, "/", { host: "locks.example" }, from)).status).toBe(status);
  });

  test("it is asked with the request, for every request", async () => {
    const asked: string[] = [];
    const { view } = await liveRig({
      authorize: (request) => {
        asked.push(`${request.method} ${new URL(request.url).pathname} ${request.headers.get("cookie")}`);
        return "read";
      },
    });
    await get(view, "/a/", { cookie: "session=1" });
    await get(view, "/a/style.css");
    expect(asked).toEqual(["GET /a/ session=1", "GET /a/style.css null"]);
  });

  test.each([
    [
      "throws",
      () => {
        throw new Error("secret of the program");
      },
    ],
    ["rejects", () => Promise.reject(new Error("secret of the program"))],
  ])("one that %s lets nobody in, and its program is told why, not the viewer", async (_, authorize) => {
    const { view, locks } = await liveRig({ authorize });
    const told: unknown[] = [];
    locks.on("warning", ({ cause }) => told.push(cause));
    const answer = await get(view);
    expect(answer.status).toBe(500);
    expect(await answer.text()).not.toContain("secret");
    expect(told).toEqual([new Error("secret of the program")]);
  });
});

test("options are checked", async () => {
  const { locks } = await liveRig();
  const wrong = [
    { authorise: () => "read" },
    { authorize: "read" },
    { release: "yes" },
    { release: true, authorize: () => "read" },
    { origins: ["example.org"] },
    { origins: ["https://example.org/path"] },
    { origins: "https://example.org" },
    { everyMs: 10 },
    { names: 0 },
    { viewers: 0.5 },
    { prefix: "\u0000" },
  ];
  for (const options of wrong) expect(() => liveView(locks, options as object), JSON.stringify(options)).toThrow();
  expect(() => liveView({} as never)).toThrow("locks made by connect");
});

describe("headers", () => {
  test("every answer forbids inline code, frames, sniffing and caches, and sets no cookie", async () => {
    const { view } = await liveRig();
    const answers = [
      await get(view),
      await get(view, "/style.css"),
      await get(view, "/nothing.js"),
      await get(view, "/", { host: "evil.example" }),
      await postRelease(view, "a", 1),
      await get(view, "/events"),
    ];
    for (const { headers } of answers) {
      const policy = headers.get("content-security-policy") ?? "";
      expect(policy).toContain("default-src 'none'");
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      expect(policy).toContain("frame-ancestors 'none'");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("set-cookie")).toBeNull();
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
    await answers.at(-1)?.body?.cancel();
  });

  test("the page holds no inline code or style, and no address but relative ones", async () => {
    const { view } = await liveRig();
    const html = await (await get(view)).text();
    expect(html).not.toMatch(/<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|https?:|="\//);
  });
});

describe("paths", () => {
  test.each(["/", "/locks/", "/a/b/c/", "//x/", "/%2e%2e/"])("the page is at %s", async (path) => {
    const { view } = await liveRig();
    const answer = await get(view, path);
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "text/html; charset=utf-8"]);
    expect((await get(view, `${path}style.css`)).status).toBe(200);
  });

  test.each([
    ["/locks", "./locks/"],
    ["/locks?q=a", "./locks/?q=a"],
    ["/a/javascript:alert(1)", "./javascript:alert(1)/"],
  ])("without its slash %s leads to the page", async (path, location) => {
    const { view } = await liveRig();
    const answer = await get(view, path);
    expect([answer.status, answer.headers.get("location")]).toEqual([307, location]);
  });

  test.each(["/package.json", "/..%2f..%2fpackage.json", "/favicon.ico", "/loop.js"])(
    "%s is not there",
    async (path) => {
      const { view } = await liveRig();
      expect((await get(view, path)).status).toBe(404);
    },
  );

  test.each([
    ["POST", "/", "GET, HEAD"],
    ["DELETE", "/style.css", "GET, HEAD"],
    ["PUT", "/events", "GET, HEAD"],
    ["HEAD", "/events", "GET"],
    ["GET", "/release", "POST"],
    ["OPTIONS", "/release", "POST"],
  ])("%s %s is refused", async (method, path, allow) => {
    const { view } = await liveRig({ release: true });
    const answer = await view(new Request(`http://localhost${path}`, { method }), LOCAL);
    expect([answer.status, answer.headers.get("allow")]).toEqual([405, allow]);
  });

  test.each([
    ["cross-site", 403],
    ["same-site", 403],
    ["same-origin", 200],
    ["none", 200],
  ])("the stream for %s: another site's page takes no place, and has nothing read", async (site, status) => {
    const { view, clock, reads } = await liveRig({ viewers: 1 });
    const answer = await get(view, "/events", { "sec-fetch-site": site });
    await clock.advance(0);
    expect([answer.status, reads.all]).toEqual([status, status === 200 ? 1 : 0]);
    await answer.body?.cancel();
  });

  test("files are sent compressed to whoever reads that", async () => {
    const { view } = await liveRig();
    expect((await get(view, "/style.css", { "accept-encoding": "br, gzip" })).headers.get("content-encoding")).toBe(
      "gzip",
    );
    expect((await get(view, "/style.css")).headers.get("content-encoding")).toBeNull();
  });
});

describe("releasing by force", () => {
  async function held(options: Parameters<typeof liveRig>[0]) {
    const made = await liveRig(options);
    const other = await made.open({ label: "worker" });
    const hold = await other.locks.mutex("stock").acquire();
    const forced: unknown[] = [];
    made.locks.on("forceReleased", (event) => forced.push(event));
    return { ...made, other, hold, forced };
  }

  test("reaches the holder as a loss, is answered, and is told as an event", async () => {
    const { view, clock, hold, forced, other } = await held({ release: true });
    const answer = await postRelease(view, "stock", hold.token);
    expect([answer.status, await answer.json()]).toEqual([200, { released: true }]);
    await clock.advance(5_000);
    expect(other.told.find(({ type }) => type === "lost")).toMatchObject({ name: "stock", reason: "revoked" });
    expect(hold.signal.aborted).toBe(true);
    expect(forced).toMatchObject([{ name: "stock", token: hold.token, holder: { label: "worker" } }]);
  });

  test.each([
    ["is off unless it is allowed", {}, {}],
    ["is not for who may only read", { authorize: () => "read" as const }, {}],
    ["is refused to a foreign Origin", { release: true }, { origin: "http://evil.example" }],
    ["is refused to the same host at another port", { release: true }, { origin: "http://localhost:3001" }],
    ["is refused to an Origin that is none", { release: true }, { origin: "null" }],
    ["is refused without an Origin", { release: true }, { origin: "" }],
    ["is refused to another site", { release: true }, { "sec-fetch-site": "cross-site" }],
    ["is refused to another origin of the same site", { release: true }, { "sec-fetch-site": "same-site" }],
    ["is refused to an address that somebody typed", { release: true }, { "sec-fetch-site": "none" }],
    ["is refused without the page's header", { release: true }, { "x-holdfast-live-view": "" }],
    [
      "is refused to an Origin that fits a foreign Host",
      { release: true },
      { host: "evil.example", origin: "http://evil.example" },
    ],
  ])("%s", async (_, options, headers) => {
    const { view, clock, hold, forced } = await held(options);
    expect((await postRelease(view, "stock", hold.token, headers)).status).toBe(403);
    await clock.advance(5_000);
    expect(hold.signal.aborted).toBe(false);
    expect(forced).toEqual([]);
  });

  test("goes by browsers that say no Sec-Fetch-Site, and by origins that the program names", async () => {
    const { view, hold } = await held({ authorize: () => "release", origins: ["https://admin.example"] });
    const wrong = await postRelease(view, "stock", hold.token, { origin: "https://other.example" });
    expect(wrong.status).toBe(403);
    const headers = { origin: "https://admin.example", "sec-fetch-site": "" };
    expect((await postRelease(view, "stock", hold.token, headers)).status).toBe(200);
  });

  test("goes by a Host whose letters are large", async () => {
    const { view, hold } = await held({ release: true });
    expect((await postRelease(view, "stock", hold.token, { host: "LOCALHOST:3000" })).status).toBe(200);
  });

  test("is shown at once", async () => {
    const { view, clock, hold, reads } = await held({ release: true });
    const reader = new Reader(await get(view, "/events"));
    await clock.advance(0);
    await reader.read();
    expect([...reader.names.keys()]).toEqual(["stock"]);
    const before = reads.all;
    await postRelease(view, "stock", hold.token);
    await clock.advance(0);
    await reader.read();
    expect([reads.all - before, [...reader.names.keys()]]).toEqual([1, []]);
  });

  test("takes nothing from a holder that came meanwhile", async () => {
    const { view, locks, hold, other, forced } = await held({ release: true });
    const { engine } = locks.client;
    const inspect = engine.inspect.bind(engine);
    let next = hold;
    // Between the look and the release.
    engine.inspect = async function* (filter = {}) {
      const states: NameState[] = [];
      for await (const state of inspect(filter)) states.push(state);
      await hold.release();
      next = await other.locks.mutex("stock").acquire();
      yield* states;
    };
    const answer = await postRelease(view, "stock", hold.token);
    expect([answer.status, forced]).toEqual([409, []]);
    expect([next === hold, await other.locks.client.state("stock")]).toEqual([
      false,
      expect.objectContaining({ holders: [expect.objectContaining({ token: next.token })] }),
    ]);
  });

  test("leaves a tombstone: a late copy of the claim does not come to life", async () => {
    const { view, engine } = await liveRig({ release: true });
    const owner = { client: "c", host: "h", pid: 1 };
    const claim = { name: "stock", id: "its id", units: 1, capacity: 1, leaseMs: 10_000, wait: true, owner };
    const { token } = (await engine().claim(claim)) as Granted;
    expect((await postRelease(view, "stock", token)).status).toBe(200);
    expect(await engine().claim(claim)).toEqual({ kind: "gone" });
  });

  test("of which the store says nothing is an error within the time of one call", async () => {
    const { view, locks, clock, hold, forced } = await held({ release: true });
    locks.client.engine.release = () => never();
    const answer = watch(postRelease(view, "stock", hold.token));
    await clock.advance(4_999);
    expect(answer.state).toBe("pending");
    await clock.advance(1);
    expect([answer.value?.status, forced]).toEqual([500, []]);
  });

  test("is for the names that are shown", async () => {
    const { view, open, hold, forced } = await held({ release: true, prefix: "mine:" });
    expect((await postRelease(view, "stock", hold.token)).status).toBe(403);
    expect(forced).toEqual([]);
    const mine = await (await open()).locks.mutex("mine:a").acquire();
    expect((await postRelease(view, "mine:a", mine.token)).status).toBe(200);
  });

  test("takes the hold with that token and no other", async () => {
    const { view, hold, forced } = await held({ release: true });
    const answer = await postRelease(view, "stock", hold.token - 1);
    expect([answer.status, await answer.json()]).toEqual([409, { released: false }]);
    expect(forced).toEqual([]);
    await hold.release();
    expect((await postRelease(view, "stock", hold.token)).status).toBe(409);
  });

  test.each(["name=&token=1", "name=a", "name=a&token=-1", "name=a&token=1e3", "name=a&token=99999999999999999", ""])(
    "wants a name and a token: %s",
    async (query) => {
      const { view } = await liveRig({ release: true });
      const request = new Request(`http://localhost/release?${query}`, {
        method: "POST",
        headers: { host: "localhost:3000", origin: "http://localhost:3000", "x-holdfast-live-view": "1" },
      });
      expect((await view(request, LOCAL)).status).toBe(400);
    },
  );

  test("a viewer is told whether it may", async () => {
    for (const [options, may] of [
      [{}, false],
      [{ release: true }, true],
    ] as const) {
      const { view } = await liveRig(options);
      const reader = new Reader(await get(view, "/events"));
      expect((await reader.read())[0]?.mayRelease).toBe(may);
    }
  });
});
