// Takes the pictures of docs/live.md from the real page: a busy store in memory, light and dark, wide and narrow.
//
//   npm run build && node tools/browser/pictures.mjs
import { createServer } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import os from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { install } from "./install.mjs";

// The pictures show nobody's machine.
os.hostname = () => "app-1";
syncBuiltinESMExports();
const { connect } = await import("../../dist/index.js");
const { memoryEngine, memoryStore } = await import("../../dist/engines/memory/index.js");
const { forNode, liveView } = await import("../../dist/live/index.js");
install();
const { launch } = await import("./drive.mjs");

const OUT = join(import.meta.dirname, "../../docs/live");
const store = memoryStore();
const open = (label, options = {}) => connect(memoryEngine(store), { label, ...options });

const view = liveView(await open("express"), { release: true, everyMs: 250 });
const server = createServer(forNode(view));
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const url = `http://127.0.0.1:${server.address().port}/`;

/** Each holds for its own time, over and over. */
async function worker(label, name, ms) {
  const locks = await open(label);
  for (;;) await locks.mutex(name).using(() => sleep(ms));
}
["checkout-1", "checkout-2", "checkout-3", "checkout-4"].forEach((label, n) =>
  worker(label, "stock:sneakers", 1_100 + 400 * n),
);
["mail-1", "mail-2"].forEach((label, n) => worker(label, "outbox", 2_000 + 900 * n));
for (const label of ["render-1", "render-2", "render-3"]) {
  const locks = await open(label);
  for (const n of [1, 2])
    (async () => {
      for (;;) await locks.semaphore("gpu:permits", 4).using(() => sleep(2_500 * n));
    })();
}
const api = await open("api-eu-1");
await api.readWrite("config").read.acquire();
void (await open("deploy")).readWrite("config").write.acquire();
await (await open("nightly-report")).mutex("report:2026-11").acquire({ leaseMs: 3_600_000 });
const parties = ["orders", "invoices", "payments"];
parties.forEach(async (mine, n) => {
  const locks = await open(`${mine}-service`, { detectDeadlockAfterMs: 3_600_000 });
  await locks.mutex(`account:${mine}`).using(async () => {
    await sleep(2_000);
    await locks.mutex(`account:${parties[(n + 1) % 3]}`).acquire();
  });
});

const browser = await launch("/usr/bin/chromium");
const PICTURES = [
  ["names", "names", "light", 1000],
  ["names-dark", "names", "dark", 1000],
  ["names-narrow", "names", "light", 390],
  ["graph", "graph", "light", 1000],
  ["timeline-dark", "timeline", "dark", 1000],
  ["lock", "lock/stock%3Asneakers", "light", 1000],
  ["lock-narrow-dark", "lock/stock%3Asneakers", "dark", 390],
  ["store", "store", "light", 1000],
];
const pages = [];
for (const [file, hash, colorScheme, width] of PICTURES) {
  const page = await browser.newPage({ colorScheme, viewport: { width, height: width > 500 ? 640 : 780 } });
  page.setDefaultTimeout(120_000);
  await page.goto(`${url}#${hash}`);
  pages.push([file, page]);
}
// Until the timeline has something to show.
await sleep(20_000);
for (const [file, page] of pages) await page.screenshot({ path: join(OUT, `${file}.png`) });
await browser.close();
process.exit(0);
