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
/** As many permits as it takes at once, each for a longer time than the one before. */
async function renderer(locks, ms) {
  for (;;) await locks.semaphore("gpu:permits", 4).using(() => sleep(ms));
}
for (const n of [1, 2, 3, 4]) void worker(`checkout-${n}`, "stock:sneakers", 700 + 400 * n);
for (const n of [1, 2]) void worker(`mail-${n}`, "outbox", 1_100 + 900 * n);
for (const n of [1, 2, 3]) {
  const locks = await open(`render-${n}`);
  for (const ms of [2_500, 5_000]) void renderer(locks, ms);
}
const api = await open("api-eu-1");
await api.readWrite("config").read.acquire();
void (await open("deploy")).readWrite("config").write.acquire();
await (await open("nightly-report")).mutex("report:2026-11").acquire({ leaseMs: 3_600_000 });
const parties = ["orders", "invoices", "payments"];
async function party(mine, next) {
  const locks = await open(`${mine}-service`, { detectDeadlockAfterMs: 3_600_000 });
  await locks.mutex(`account:${mine}`).using(async () => {
    await sleep(2_000);
    await locks.mutex(`account:${next}`).acquire();
  });
}
parties.forEach((mine, n) => void party(mine, parties[(n + 1) % 3]));

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
  pages.push({ path: join(OUT, `${file}.png`), page });
}
// Until the timeline has something to show.
await sleep(20_000);
for (const { path, page } of pages) await page.screenshot({ path });
await browser.close();
process.exit(0);
