// What the live view costs: the bytes of its page, how long a browser takes to show the first row of a large store, and what the store
// is asked while nobody, one or ten look. On a Redis of our own, with Debian's Chromium (`npm test -- browser` installs it).
//
//   npm run bench -- live [seconds] [names] [rounds]
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";
import { connect } from "../dist/index.js";
import { assetOf, SCRIPTS } from "../dist/live/assets.js";
import { forNode, liveView } from "../dist/live/index.js";
import { install } from "../tools/browser/install.mjs";
import { median, progress, table } from "./lib/measure.mjs";
import { startRedis } from "./lib/redis-server.mjs";
import { monitor } from "./stores/redis.mjs";

const [seconds = 60, names = 10_000, rounds = 5] = process.argv.slice(2).map(Number);
const CHROMIUM = "/usr/bin/chromium";

/** A live view of its own, as a program would mount it. */
async function serve(url) {
  const locks = await connect(url);
  const view = liveView(locks);
  const server = createServer(forNode(view));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = async () => {
    view.close();
    server.closeAllConnections();
    server.close();
    await locks.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, close };
}

async function bytes(url) {
  const html = Buffer.from(await (await fetch(url)).text());
  const files = ["style.css", ...SCRIPTS].map((name) => [name, assetOf(name)]);
  const sizes = [["the page itself, of an empty store", html.length, gzipSync(html).length]];
  for (const [name, { plain, gzip }] of files) sizes.push([name, plain.length, gzip.length]);
  const sum = (at) => sizes.reduce((total, row) => total + row[at], 0);
  table("Bytes of the page", ["file", "plain", "gzip"], [...sizes, ["all", sum(1), sum(2)]]);
}

/** Requests that reach the server in a minute while so many look. */
async function perMinute(url, counter, viewers) {
  const stop = new AbortController();
  const readers = Array.from({ length: viewers }, async () => {
    const { body } = await fetch(new URL("events", url), { signal: stop.signal });
    try {
      for await (const _ of body);
    } catch {
      // We left.
    }
  });
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  await pause(2_000);
  const before = await counter.requests();
  await pause(seconds * 1000);
  const after = await counter.requests();
  stop.abort();
  await Promise.all(readers);
  return Math.round(((after - before) * 60) / seconds);
}

/** In the page: when a row was there first, when the scripts had taken over, and when all names were known. */
function observe(count) {
  const times = {};
  globalThis.times = times;
  const look = () => {
    if (document.querySelector("tbody tr")) times.firstRow ??= performance.now();
    const live = document.querySelector("main section tbody tr");
    if (live) times.live ??= performance.now();
    if (live && document.querySelector("caption")?.textContent.includes(count)) times.all ??= performance.now();
    if (times.all === undefined) requestAnimationFrame(look);
  };
  look();
}

async function firstRow(url) {
  install();
  const { launch } = await import("../tools/browser/drive.mjs");
  const browser = await launch(CHROMIUM);
  const all = [];
  for (let round = 0; round <= rounds; round += 1) {
    const page = await browser.newPage();
    await page.addInitScript(observe, `${names.toLocaleString("en")} names`);
    await page.goto(url);
    for (let times = {}; times.all === undefined; times = await page.evaluate("globalThis.times")) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    // The first page of a browser is slower: it warms up.
    if (round > 0) all.push(await page.evaluate("globalThis.times"));
    await page.close();
  }
  await browser.close();
  const of = (moment) => `${Math.round(median(all.map((times) => times[moment])))} ms`;
  const rows = [
    ["first row, without scripts", of("firstRow")],
    ["first row of the live table", of("live")],
    ["all names known", of("all")],
  ];
  table(`From the navigation, ${names.toLocaleString("en")} names held, median of ${rounds}`, ["moment", "time"], rows);
}

const redis = await startRedis();
const site = await serve(redis.url);
await bytes(site.url);

const counter = await monitor(redis.port);
const holder = await connect(redis.url, { label: "holder" });
const few = await Promise.all(
  Array.from({ length: 10 }, (_, n) => holder.mutex(`few-${n}`).acquire({ leaseMs: 3_600_000 })),
);
const rows = [];
for (const viewers of [0, 1, 10]) {
  progress(`${viewers} viewers`);
  rows.push([String(viewers), await perMinute(site.url, counter, viewers)]);
}
progress("");
table("Requests to Redis in a minute, 10 names held, read every second", ["viewers", "requests"], rows);
counter.stop();

const many = await Promise.all(
  Array.from({ length: names - few.length }, (_, n) => holder.mutex(`n${n}`).acquire({ leaseMs: 3_600_000 })),
);
await firstRow(site.url);
await Promise.all([...few, ...many].map((hold) => hold.release()));
await holder.close();
await site.close();
redis.stop();
