import { execFile } from "node:child_process";
import { createServer } from "node:http";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Browser, openBrowser, type Page } from "../servers/browser.js";
import { until } from "../servers/process.js";
import { command, type RedisServer, startRedis } from "../servers/redis.js";
import { client, holds, listen, open, serve, shows, to } from "./rig.js";

let browser: Browser;
let axe: string;
let redis: RedisServer;

beforeAll(async () => {
  ({ browser, axe } = await openBrowser());
  redis = await startRedis();
}, 180_000);
afterAll(async () => {
  await browser?.close();
  await redis?.running.stop();
});

/** Each test has names of its own in the one store. */
let tests = 0;
const prefixed = (): string => `t${(tests += 1)}:`;

/** Of the hand-overs that the page saw, in the order in which it saw them. */
const tokensOf = async (page: Page): Promise<number[]> =>
  (await rows(page, '[aria-label="Hand-overs"] td[data-column="Token"]')).map(Number).toReversed();

const rows = (page: Page, selector: string): Promise<string[]> => page.locator(selector).allTextContents();

describe("what the page shows is what the store says", () => {
  test("holders and waiters of a name, and each hand-over, in order and with rising tokens", async () => {
    const prefix = prefixed();
    const name = `${prefix}stock`;
    const { url, locks } = await serve(redis.url, { prefix });
    const page = await open(browser, url);
    const buyers = await Promise.all([1, 2, 3, 4].map((n) => client(redis.url, `buyer-${n}`)));
    const first = await buyers[0]?.mutex(name).acquire();
    const waits = [];
    for (const buyer of buyers.slice(1)) {
      waits.push(buyer.mutex(name).acquire());
      // One after the other, so that their order is known.
      for (let queued = 0; queued < waits.length; ) {
        for await (const { waiters } of locks.inspect({ name })) queued = waiters.length;
      }
    }
    await shows(page, "tbody tr", "buyer-1");
    await page.getByRole("link", { name, exact: true }).click();
    await shows(page, "table:nth-of-type(1) caption, caption", "Waiting: 3");

    let state:
      | {
          holders: readonly { token: number; owner: { label?: string } }[];
          waiters: readonly { owner: { label?: string } }[];
        }
      | undefined;
    for await (const one of locks.inspect({ name })) state = one;
    const held = await rows(page, '[aria-label="Holders"] tbody tr');
    const waiting = await rows(page, '[aria-label="Waiters"] tbody tr');
    expect(held).toHaveLength(1);
    expect(held[0]).toContain(state?.holders[0]?.owner.label);
    expect(held[0]).toContain(String(state?.holders[0]?.token));
    expect(waiting.map((row) => /buyer-\d/.exec(row)?.[0])).toEqual(state?.waiters.map(({ owner }) => owner.label));

    let hold = first;
    for (const wait of waits) {
      await hold?.release();
      hold = await wait;
      await shows(page, '[aria-label="Holders"] tbody tr', String(hold.token));
    }
    await hold?.release();
    await shows(page, ".facts", "It is free");
    await to(page, "timeline");
    const handOvers = (await rows(page, '[aria-label="Hand-overs"] tbody tr')).toReversed();
    expect(handOvers.map((row) => /buyer-\d/.exec(row)?.[0])).toEqual(["buyer-1", "buyer-2", "buyer-3", "buyer-4"]);
    const tokens = await tokensOf(page);
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
    expect(new Set(tokens).size).toBe(4);
  });

  test("the flash sale on Redis: its hand-overs, with rising tokens", { timeout: 300_000 }, async () => {
    const { url } = await serve(redis.url, { prefix: "example:" });
    const page = await open(browser, `${url}#timeline`);
    const sale = resolve(import.meta.dirname, "../../examples/flash-sale/run.mjs");
    const sell = (): Promise<string> =>
      new Promise((done, fail) => {
        const args = [sale, "--variant", "mutex", "--runs", "2", "--url", redis.url];
        execFile(process.execPath, args, (error, out) => (error === null ? done(out) : fail(error)));
      });
    const seen = (): Promise<string[]> => rows(page, '[aria-label="Hand-overs"] tbody tr');
    for (let sales = 0; sales < 5 && (await seen()).length < 3; sales += 1) await sell();
    const handOvers = (await seen()).toReversed();
    expect(handOvers.length).toBeGreaterThanOrEqual(3);
    for (const row of handOvers) expect(row).toContain("example:product");
    const tokens = await tokensOf(page);
    expect(tokens).toEqual(tokens.toSorted((a, b) => a - b));
  });

  test("a deadlock of three is a cycle; solved, it is none", async () => {
    const prefix = prefixed();
    const { url } = await serve(redis.url, { prefix });
    const page = await open(browser, `${url}#graph`);
    const stop = new AbortController();
    const pairs = [
      ["a", "b"],
      ["b", "c"],
      ["c", "a"],
    ] as const;
    let holding = 0;
    let all: () => void = () => {};
    const everybodyHolds = new Promise<void>((resolve) => (all = resolve));
    const ends = pairs.map(async ([mine, next]) => {
      const locks = await client(redis.url, `service-${mine}`, { detectDeadlockAfterMs: 3_600_000 });
      await locks.mutex(`${prefix}${mine}`).using(async () => {
        holding += 1;
        if (holding === 3) all();
        await everybodyHolds;
        await locks.mutex(`${prefix}${next}`).using({ signal: stop.signal }, () => {});
      });
    });
    const ended = Promise.allSettled(ends);
    await shows(page, "article.deadlock h3", "Deadlock of 3");
    await shows(page, "#status", "1 deadlock");
    const lines = await rows(page, "article.deadlock li");
    expect(lines.toSorted()).toEqual(
      pairs.map(([mine, next]) => `service-${mine} waits for ${prefix}${next}, held by service-${next} (deadlocked)`),
    );
    expect(await page.locator("article.deadlock svg path.bad").count()).toBe(3);
    stop.abort();
    await ended;
    await shows(page, "#graph-title + p", "Nobody waits");
  });

  test("a page of the store: engine, guarantees, server, probe", async () => {
    const { url, locks } = await serve(redis.url, { prefix: prefixed() });
    const page = await open(browser, `${url}#store`);
    await shows(page, "dd", "redis");
    const told = await page.locator("main").innerText();
    for (const value of [locks.guarantees.exclusion, locks.guarantees.order, locks.guarantees.wake]) {
      expect(told).toContain(value);
    }
    expect(told).toMatch(/A small read took\s+\d/);
  });
});

describe("bad weather", () => {
  test("a stopped store turns the page into “not answering”, and back", { timeout: 300_000 }, async () => {
    const other = await startRedis();
    try {
      const { url } = await serve(other.url, { release: true });
      const holder = await client(other.url, "holder");
      const hold = await holder.mutex("kept").acquire({ leaseMs: 600_000 });
      const page = await open(browser, url);
      await shows(page, "#status", "Live");
      await shows(page, "tbody tr", "kept");
      other.running.signal("SIGSTOP");
      await shows(page, "#status", "not answering");
      // What was known last stays.
      expect((await rows(page, "tbody tr")).join()).toContain("kept");
      await to(page, "lock/kept");
      await page.getByRole("button", { name: "Take away from holder" }).click();
      await page.getByRole("button", { name: "Take it away", exact: true }).click();
      await shows(page, "dialog", "It is not known whether it was taken away");
      other.running.signal("SIGCONT");
      await shows(page, "#status", "Live");
      await hold.release();
    } finally {
      other.running.signal("SIGCONT");
      await other.running.stop();
    }
  });

  test("a program that ends is told, and its successor is found", { timeout: 300_000 }, async () => {
    const prefix = prefixed();
    const { url, server, view } = await serve(redis.url, { prefix });
    const page = await open(browser, url);
    await shows(page, "#status", "Live");
    const { port } = server.address() as { port: number };
    view.close();
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
    await holds(page, `document.querySelector("#status").className === "bad"`);
    const again = await serve(redis.url, { prefix });
    again.server.closeAllConnections();
    await new Promise((closed) => again.server.close(closed));
    again.server.listen(port, "127.0.0.1");
    await shows(page, "#status", "Live");
  });
});

test("ten viewers cost the store as much as one, and nobody costs nothing: counted by the server", {
  timeout: 300_000,
}, async () => {
  const other = await startRedis();
  try {
    const { url } = await serve(other.url, { everyMs: 100 });
    const listings = async (): Promise<number> => {
      const stats = await command(other.port, "INFO commandstats");
      return Number(/cmdstat_scan:calls=(\d+)/.exec(stats)?.[1] ?? 0);
    };
    const everyMs = 100;
    /** While a page is told of twenty readings, the store is listed once in each interval at most: less on a busy machine. */
    const watched = async (page: Page): Promise<void> => {
      const told = `window.readings = 0; window.source ??= new EventSource("events"); window.source.onmessage = () => { window.readings += 1; }`;
      await page.evaluate(told);
      const startedAt = performance.now();
      const before = await listings();
      await holds(page, "window.readings >= 20");
      const asked = (await listings()) - before;
      expect(asked).toBeGreaterThan(0);
      expect(asked).toBeLessThanOrEqual((performance.now() - startedAt) / everyMs + 2);
    };
    const one = await open(browser, url);
    await watched(one);
    const others = await Promise.all(Array.from({ length: 9 }, () => open(browser, url)));
    for (const page of others) await shows(page, "#status", "Live");
    await watched(one);
    for (const page of [one, ...others]) await page.close();
    // The last one leaves when the server sees its connection closed; from then on nothing is asked.
    let quiet = -1;
    for (let before = await listings(); quiet !== before; before = await listings()) {
      quiet = before;
      await new Promise((done) => setTimeout(done, 1_000));
    }
    expect(await listings()).toBe(quiet);
  } finally {
    await other.running.stop();
  }
});

describe("taking a lock away by the page", () => {
  test("asks once, names the holder and the risk, and reaches the holder as a loss", async () => {
    const prefix = prefixed();
    const name = `${prefix}stuck`;
    const { url, locks } = await serve(redis.url, { prefix, release: true });
    const told: unknown[] = [];
    locks.on("forceReleased", (event) => told.push(event));
    const holder = await client(redis.url, "worker-7");
    const lost = new Promise((resolve) => holder.on("lost", resolve));
    const hold = await holder.mutex(name).acquire();
    const page = await open(browser, `${url}#lock/${encodeURIComponent(name)}`);
    await page.getByRole("button", { name: "Take away from worker-7" }).click();
    const dialog = page.locator("dialog");
    expect(await dialog.innerText()).toMatch(/worker-7.*token \d+/s);
    expect(await dialog.innerText()).toContain("two may work at once");
    // Nothing has happened yet.
    expect(hold.signal.aborted).toBe(false);
    await page.getByRole("button", { name: "Take it away", exact: true }).click();
    await shows(page, "dialog", "It was taken away");
    expect(await lost).toMatchObject({ name, token: hold.token, reason: "revoked" });
    expect(told).toMatchObject([{ name, token: hold.token, holder: { label: "worker-7" } }]);
    await page.getByRole("button", { name: "Close" }).click();
    await shows(page, ".facts", "It is free");
  });

  test("is not offered where it is not allowed", async () => {
    const prefix = prefixed();
    const { url } = await serve(redis.url, { prefix });
    const hold = await (await client(redis.url, "worker")).mutex(`${prefix}a`).acquire();
    const page = await open(browser, `${url}#lock/${encodeURIComponent(`${prefix}a`)}`);
    await shows(page, '[aria-label="Holders"] tbody tr', "worker");
    expect(await page.getByRole("button", { name: /Take/ }).count()).toBe(0);
    await hold.release();
  });

  test("is refused to another site's page, which cannot look either", async () => {
    const prefix = prefixed();
    const { url, server, locks } = await serve(redis.url, { prefix, release: true });
    const answers: string[] = [];
    server.on("request", (request, response) => {
      response.on("close", () =>
        answers.push(`${request.method} ${request.headers["sec-fetch-site"]} ${response.statusCode}`),
      );
    });
    const hold = await (await client(redis.url, "worker")).mutex(`${prefix}a`).acquire();
    const evil = await browser.newPage();
    onTestFinished(() => evil.close());
    await evil.goto(`http://evil.example:${await foreignSite()}/`);
    const target = `${url}release?name=${encodeURIComponent(`${prefix}a`)}&token=${hold.token}`;
    const attempts = await evil.evaluate<unknown[]>(`(async () => {
      const tries = [];
      for (const [at, options] of [
        [${JSON.stringify(target)}, { method: "POST" }],
        [${JSON.stringify(target)}, { method: "POST", headers: { "x-holdfast-live-view": "1" } }],
        [${JSON.stringify(target)}, { method: "POST", mode: "no-cors" }],
        [${JSON.stringify(url)}, {}],
      ]) tries.push(await fetch(at, options).then((answer) => answer.status, () => "blocked"));
      return tries;
    })()`);
    // It may read nothing, and what reached the server was refused there.
    expect(attempts).toEqual(Array(4).fill("blocked"));
    await evil.evaluate(`(() => {
      const form = Object.assign(document.createElement("form"), { method: "post", action: ${JSON.stringify(target)} });
      document.body.append(form);
      form.submit();
    })()`);
    await until("the form was answered", () => answers.filter((one) => one.startsWith("POST")).length >= 3);
    expect(answers.filter((one) => one.startsWith("POST"))).toEqual(Array(3).fill("POST cross-site 403"));
    expect(answers.filter((one) => one.startsWith("OPTIONS"))).toEqual(["OPTIONS cross-site 405"]);
    const tokens: number[] = [];
    for await (const { holders } of locks.inspect({ name: `${prefix}a` }))
      tokens.push(...holders.map(({ token }) => token));
    expect(tokens).toEqual([hold.token]);
    await hold.release();
  });

  test("a name that another site made to point here is refused", async () => {
    const { server } = await serve(redis.url, { prefix: prefixed() });
    const { port } = server.address() as { port: number };
    const page = await browser.newPage();
    // The browser finds this machine under that name.
    expect((await page.goto(`http://rebound.example:${port}/`))?.status()).toBe(403);
    expect((await page.goto(`http://localhost:${port}/`))?.status()).toBe(200);
    await page.close();
  });
});

/** A page of somebody else, that may do whatever a page may do. */
async function foreignSite(): Promise<number> {
  const server = createServer((_, response) => response.setHeader("content-type", "text/html").end("<body>evil"));
  onTestFinished(() => void server.close());
  return listen(server);
}

describe("names and labels are text", () => {
  const HOSTILE = [
    '<img src=x onerror="window.hacked=1">',
    '"><script>window.hacked=1</script>',
    "'; window.hacked=1; '",
    "javascript:window.hacked=1",
    "a/b?c#d%2F&e=f",
    "שלום עולם مرحبا",
    "evil\u202egnp.exe",
    "日本語のロック名",
    "long-".padEnd(512 - 8, "x"),
  ];

  test("markup, quotes, right-to-left text, 512 bytes", async () => {
    const prefix = prefixed();
    const { url } = await serve(redis.url, { prefix, release: true });
    const locked = [];
    for (const text of HOSTILE) {
      const locks = await client(redis.url, text.slice(0, 80));
      locked.push(await locks.mutex(`${prefix}${text}`).acquire());
    }
    const page = await open(browser, url);
    await shows(page, "caption", `${HOSTILE.length} names in use`);
    const shown = (text: string): string => text.replace("\u202e", "⟨U+202E⟩");
    const cells = await rows(page, "tbody th");
    expect(new Set(cells)).toEqual(new Set(HOSTILE.map((text) => shown(`${prefix}${text}`))));
    for (const text of HOSTILE) {
      const name = `${prefix}${text}`;
      await to(page, `lock/${encodeURIComponent(name)}`);
      await shows(page, "h2", shown(name));
      await shows(page, '[aria-label="Holders"] tbody tr', shown(text.slice(0, 80)));
    }
    await page.locator("button.danger").first().click();
    await page.keyboard.press("Escape");
    for (const view of ["graph", "timeline", "store"]) await to(page, view);
    expect(await page.evaluate("typeof window.hacked")).toBe("undefined");
    expect(await page.locator("main img, main script").count()).toBe(0);
    // Nothing is wider than the screen because of a long name.
    await page.setViewportSize({ width: 390, height: 800 });
    await to(page, "names");
    expect(await page.evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    for (const hold of locked) await hold.release();
  });
});

test("10,000 names: counted, searched, sorted, and shown in steps", { timeout: 300_000 }, async () => {
  const prefix = prefixed();
  const { url } = await serve(redis.url, { prefix });
  const locks = await client(redis.url, "crowd");
  const names = Array.from({ length: 10_000 }, (_, n) => `${prefix}n${String(n).padStart(5, "0")}`);
  const locked = await Promise.all(names.map((name) => locks.mutex(name).acquire({ leaseMs: 600_000 })));
  const page = await open(browser, url);
  await shows(page, "caption", "10,000 names in use");
  expect(await page.locator("tbody tr").count()).toBe(200);
  await page.getByRole("button", { name: /Show 200 more/ }).click();
  expect(await page.locator("tbody tr").count()).toBe(400);
  await page.getByLabel("Search").fill("n0999");
  await shows(page, "caption", "10 of 10,000 names in use");
  expect((await rows(page, "tbody th")).at(0)).toBe(`${prefix}n09990`);
  await page.getByRole("button", { name: "Name" }).click();
  await page.getByRole("button", { name: "Name" }).click();
  expect((await rows(page, "tbody th")).at(0)).toBe(`${prefix}n09999`);
  await Promise.all(locked.map((hold) => hold.release()));
});

test("filters by kind and by label, and sorts by who waits longest", async () => {
  const prefix = prefixed();
  const { url } = await serve(redis.url, { prefix });
  const [one, two] = [await client(redis.url, "one"), await client(redis.url, "two")];
  const locked = [
    await one.mutex(`${prefix}m`).acquire(),
    await two.semaphore(`${prefix}s`, 3).acquire(),
    await two.readWrite(`${prefix}rw`).read.acquire(),
  ];
  const stop = new AbortController();
  const wait = one
    .readWrite(`${prefix}rw`)
    .write.acquire({ signal: stop.signal })
    .catch(() => {});
  const page = await open(browser, url);
  await shows(page, "caption", "3 names in use");
  await holds(page, `document.querySelector("tbody th").textContent === ${JSON.stringify(`${prefix}rw`)}`);
  await page.getByLabel("Kind").selectOption("semaphore");
  expect(await rows(page, "tbody th")).toEqual([`${prefix}s`]);
  await page.getByLabel("Kind").selectOption("all");
  await page.getByLabel("Label").selectOption("one");
  expect((await rows(page, "tbody th")).toSorted()).toEqual([`${prefix}m`, `${prefix}rw`]);
  stop.abort();
  await wait;
  for (const hold of locked) await hold.release();
});

describe("for everybody", () => {
  async function busy(): Promise<{ url: string; name: string; done: () => Promise<void> }> {
    const prefix = prefixed();
    const { url } = await serve(redis.url, { prefix, release: true });
    const name = `${prefix}stock`;
    const [one, two] = [await client(redis.url, "one"), await client(redis.url, "two")];
    const hold = await one.mutex(name).acquire();
    const permits = await two.semaphore(`${prefix}pool`, 3).acquire();
    const stop = new AbortController();
    const wait = two
      .mutex(name)
      .acquire({ signal: stop.signal })
      .catch(() => {});
    return {
      url,
      name,
      done: async () => {
        stop.abort();
        await wait;
        await hold.release();
        await permits.release();
      },
    };
  }

  test.each([
    ["light", 1100],
    ["dark", 1100],
    ["light", 390],
    ["dark", 390],
  ] as const)("axe-core finds nothing wrong: %s, %i px wide", async (colorScheme, width) => {
    const { url, name, done } = await busy();
    const page = await open(browser, url, { colorScheme, viewport: { width, height: 800 }, bypassCSP: true });
    await page.evaluate(axe);
    for (const view of ["names", "graph", "timeline", "store", `lock/${encodeURIComponent(name)}`, "dialog"]) {
      if (view === "dialog") await page.locator("button.danger").first().click();
      else await to(page, view);
      await holds(page, `document.querySelector("main").textContent.length > 60`);
      type Found = { violations: { id: string; nodes: { html: string }[] }[] };
      const { violations } = await page.evaluate<Found>("axe.run()");
      expect(violations.map(({ id, nodes }) => [view, id, nodes[0]?.html])).toEqual([]);
    }
    await done();
  });

  test("by keyboard alone: to a name, through taking it away, and back", async () => {
    const { url, name, done } = await busy();
    const page = await open(browser, url);
    await shows(page, "tbody tr", name);
    const focused = (): Promise<string> =>
      page.evaluate(`(document.activeElement.getAttribute("aria-label") ?? document.activeElement.textContent).trim()`);
    const tabTo = async (text: string): Promise<void> => {
      for (let tabs = 0; tabs < 40 && (await focused()) !== text; tabs += 1) await page.keyboard.press("Tab");
      expect(await focused()).toBe(text);
    };
    await page.keyboard.press("Tab");
    expect(await focused()).toBe("Skip to the content");
    await tabTo(name);
    await page.keyboard.press("Enter");
    await shows(page, "h2", name);
    await tabTo("Take away from one");
    await page.keyboard.press("Enter");
    // It begins with what does no harm.
    expect(await focused()).toBe("Keep it");
    await page.keyboard.press("Escape");
    expect(await focused()).toBe("Take away from one");
    await tabTo("Graph");
    await page.keyboard.press("Enter");
    await shows(page, "article li", "two waits for");
    await done();
  });

  test("the focus stays on a row while the table changes around it", async () => {
    const prefix = prefixed();
    const { url } = await serve(redis.url, { prefix });
    const locks = await client(redis.url, "one");
    const hold = await locks.mutex(`${prefix}m`).acquire();
    const page = await open(browser, url);
    await shows(page, "tbody tr", `${prefix}m`);
    await page.evaluate(`document.querySelector("tbody a").focus()`);
    const others = [await locks.mutex(`${prefix}a`).acquire(), await locks.mutex(`${prefix}z`).acquire()];
    await shows(page, "caption", "3 names");
    expect(await page.evaluate("document.activeElement.textContent")).toBe(`${prefix}m`);
    for (const one of [hold, ...others]) await one.release();
  });

  test("without scripts it is a table that stands still, and can be searched", async () => {
    const { url, name, done } = await busy();
    const page = await browser.newPage({ javaScriptEnabled: false });
    await page.goto(url);
    const text = await page.locator("main").innerText();
    expect(text).toContain(name);
    expect(text).toContain("stands still");
    await page.getByLabel("Search").fill("pool");
    await page.getByRole("button", { name: "Search" }).click();
    expect(await page.locator("tbody tr").count()).toBe(1);
    expect(await page.locator("tbody th").innerText()).toBe(name.replace("stock", "pool"));
    await page.close();
    await done();
  });
});
