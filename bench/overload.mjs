// Ten thousand holds of one client while the store is slow for a minute, behind a proxy in a thread of its own: a second on the way, half of the bandwidth that the
// heartbeats need, and stops of five seconds. How many holds are lost, how many calls were under way, and how long it took until all
// that are left were renewed again. What was told is compared with what the store says, past the proxy.
//
//   npm run bench -- overload [stores, by comma] [holds] [seconds] [a word of what is slow: "way", "bandwidth", "stops"]
import { Worker } from "node:worker_threads";
import { openPostgres } from "../dist/engines/postgres/index.js";
import { openRedis } from "../dist/engines/redis/index.js";
import { connect } from "../dist/index.js";
import { startPostgres } from "./lib/databases.mjs";
import { progress, table } from "./lib/measure.mjs";
import { startRedis } from "./lib/redis-server.mjs";
import { pause } from "./stores/holdfast.mjs";

const [only = "redis,postgres", holdsText = "10000", secondsText = "60", word = ""] = process.argv.slice(2);
const [holdCount, seconds] = [Number(holdsText), Number(secondsText)];
const LEASE_MS = 10_000;

/** The proxy has a thread of its own: the program that is measured must not wait for it. */
async function startProxy(port) {
  const code = `
    import { parentPort } from "node:worker_threads";
    import { slowProxy } from ${JSON.stringify(new URL("./lib/slow-proxy.mjs", import.meta.url).href)};
    const proxy = await slowProxy(${port});
    parentPort.on("message", (change) => {
      const { stopMs, heal, ...rest } = change;
      if (heal) proxy.heal();
      Object.assign(proxy.link, rest);
      if (stopMs) proxy.link.stoppedUntil = performance.now() + stopMs;
      parentPort.postMessage({ bytes: proxy.link.bytes, connections: proxy.link.connections });
    });
    parentPort.postMessage(proxy.port);
  `;
  const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`));
  const answer = () => new Promise((resolve) => worker.once("message", resolve));
  const change = (what) => {
    const answered = answer();
    worker.postMessage(what, []);
    return answered;
  };
  return { port: await answer(), change, stop: () => worker.terminate() };
}

/** Counts the calls with heartbeats that are under way. */
function watched(engine) {
  const calls = { underWay: 0, most: 0 };
  const renew = engine.renew.bind(engine);
  engine.renew = (requests) => {
    calls.underWay += 1;
    calls.most = Math.max(calls.most, calls.underWay);
    return renew(requests).finally(() => (calls.underWay -= 1));
  };
  return calls;
}

async function overload(open, url, direct, proxy, slow) {
  const engine = await open(url);
  const calls = watched(engine);
  const locks = await connect(engine, { leaseMs: LEASE_MS });
  const events = { jeopardy: 0, unavailable: 0 };
  for (const type of Object.keys(events)) locks.on(type, () => (events[type] += 1));
  const renewed = new Map();
  const holds = [];
  // Taken over a third of a lease, so that their heartbeats are due at different times, as those of a program that has run for a while.
  for (let n = 0; n < holdCount; n += 500) {
    const batch = Array.from({ length: Math.min(500, holdCount - n) }, (_, m) =>
      locks.mutex(`load:${n + m}`).acquire(),
    );
    holds.push(...(await Promise.all(batch)));
    await pause(LEASE_MS / 3 / (holdCount / 500));
  }
  locks.on("renewed", ({ id }) => renewed.set(id, performance.now()));
  await pause(LEASE_MS / 2);
  const before = (await proxy.change({})).bytes;
  const from = performance.now();
  await pause(LEASE_MS);
  const after = (await proxy.change({})).bytes;
  const most = Math.max(after.requests - before.requests, after.answers - before.answers);
  const bytesPerSecond = (1000 * most) / (performance.now() - from);
  const { connections } = await proxy.change({});
  const ends = performance.now() + seconds * 1000;
  while (performance.now() < ends) await slow(proxy, bytesPerSecond);
  const healedAt = performance.now();
  const opened = (await proxy.change({ heal: true })).connections - connections;
  const living = holds.filter(({ state }) => state !== "lost");
  // A call that was sent after the end of it was answered.
  const stale = () => living.filter((hold) => hold.state !== "lost" && !((renewed.get(hold.id) ?? 0) > healedAt));
  while (stale().length > 0 && performance.now() < healedAt + 2 * LEASE_MS) await pause(20);
  const recovered = stale().length === 0 ? `${((performance.now() - healedAt) / 1000).toFixed(1)} s` : "not";
  const store = await connect(direct);
  const tokens = new Map();
  for await (const { name, holders } of store.inspect({ prefix: "load:" })) tokens.set(name, holders[0]?.token);
  const kept = holds.filter(({ state }) => state !== "lost");
  const wrong = kept.filter(({ name, token, state }) => state !== "lost" && tokens.get(name) !== token).length;
  await store.close();
  await locks.close();
  await engine[Symbol.asyncDispose]();
  return { most: calls.most, kept: kept.length, lost: holds.length - kept.length, wrong, recovered, opened, ...events };
}

const SLOW = {
  "1 s on the way": async (proxy) => {
    await proxy.change({ delayMs: 1000 });
    await pause(1000);
  },
  "half of the bandwidth": async (proxy, bytesPerSecond) => {
    await proxy.change({ bytesPerSecond: bytesPerSecond / 2 });
    await pause(1000);
  },
  "stops of 5 s": async (proxy) => {
    await proxy.change({ stopMs: 5000 });
    await pause(15_000);
  },
};

const STORES = {
  redis: { start: startRedis, open: openRedis },
  postgres: { start: startPostgres, open: openPostgres },
};
const rows = [];
for (const name of only.split(",")) {
  for (const [title, slow] of Object.entries(SLOW)) {
    if (!title.includes(word)) continue;
    progress(`${name}, ${title}: about ${seconds + 40} s`);
    const { start, open } = STORES[name];
    const { url: direct, stop } = await start();
    const proxy = await startProxy(Number(new URL(direct).port));
    const url = new URL(direct);
    url.port = String(proxy.port);
    const one = await overload(open, url.href, direct, proxy, slow);
    rows.push([
      `${name}, ${title}`,
      one.kept,
      one.lost,
      one.wrong,
      one.most,
      one.recovered,
      one.jeopardy,
      one.unavailable,
      one.opened,
    ]);
    await proxy.stop();
    await stop();
  }
}
progress("");
table(
  `${holdCount.toLocaleString("en")} holds, lease ${LEASE_MS / 1000} s, slow for ${seconds} s`,
  [
    "",
    "kept",
    "lost",
    "kept but not in the store",
    "most calls under way",
    "all renewed after",
    "jeopardy",
    "unavailable",
    "connections opened meanwhile",
  ],
  rows,
);
