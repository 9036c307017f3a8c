// Redlock over five local servers beside redlock 5, redis-semaphore and bare commands. Only the ratios mean anything.
import { Redis } from "ioredis";
import { interleave, median, percentile, ratio, table } from "./lib/measure.mjs";
import { QUORUM_PEERS } from "./lib/quorum-peers.mjs";
import { startRedis } from "./lib/redis-server.mjs";
import { chance } from "./lib/rounds.mjs";
import { MEASURES, SIZES } from "./measures/index.mjs";
import { quorum } from "./stores/quorum.mjs";

const MEMBERS = 5;
const PAIRS = 500;
/** Before the first round, so that all are compiled: the first thousands cost each of them up to a half more. */
const WARM_UP = 4_000;
const CONTENDERS = 32;
const HOT_MS = 2_000;
const where = (servers) => {
  const ports = servers.map(({ port }) => port);
  return { ports, url: `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(",")}` };
};

async function open(servers, names = Object.keys(QUORUM_PEERS)) {
  const peers = {};
  for (const name of names) peers[name] = await QUORUM_PEERS[name](where(servers));
  return peers;
}

const closeAll = (peers) => Promise.all(Object.values(peers).map((peer) => peer.close()));

async function uncontended(servers) {
  const peers = await open(servers);
  const admin = new Redis(servers[0].port);
  for (const [name, { take }] of Object.entries(peers))
    for (let n = 0; n < WARM_UP; n += 1) await (await take(`warm:${name}`))();
  const figures = await interleave(
    Object.fromEntries(
      Object.entries(peers).map(([name, { take }]) => [
        name,
        async () => {
          const start = performance.now();
          for (let n = 0; n < PAIRS; n += 1) await (await take(`pair:${name}`))();
          return (performance.now() - start) / PAIRS;
        },
      ]),
    ),
    9,
  );
  const commands = {};
  for (const [name, { take }] of Object.entries(peers)) {
    await admin.config("RESETSTAT");
    for (let n = 0; n < 50; n += 1) await (await take(`count:${name}`))();
    const stats = await admin.info("commandstats");
    // What the client sends; what a script runs inside is its own business.
    const sent = [...stats.matchAll(/cmdstat_(evalsha|eval|set):calls=(\d+)/g)];
    const scripts = sent
      .filter(([, command]) => command !== "set")
      .reduce((sum, [, , calls]) => sum + Number(calls), 0);
    commands[name] = name === "bare commands" ? 2 : scripts / 50;
  }
  admin.disconnect();
  await closeAll(peers);
  table(
    `Uncontended pair over ${MEMBERS} servers, one after the other (medians of 9 interleaved rounds of ${PAIRS}, after ${WARM_UP} each)`,
    ["", "ms", "to bare commands", "to redlock 5", "to redis-semaphore", "commands per server"],
    Object.keys(peers).map((name) => [
      name,
      median(figures[name]).toFixed(3),
      `${ratio(figures[name], figures["bare commands"]).toFixed(2)} ×`,
      `${ratio(figures[name], figures["redlock 5 beta"]).toFixed(2)} ×`,
      `${ratio(figures[name], figures["redis-semaphore"]).toFixed(2)} ×`,
      commands[name],
    ]),
  );
}

/** How long each of `count` acquisitions took. */
async function acquisitions({ take }, name, count) {
  const times = [];
  for (let n = 0; n < count; n += 1) {
    const start = performance.now();
    const release = await take(name);
    times.push(performance.now() - start);
    await release();
  }
  return times;
}

async function withFaults() {
  const rows = [];
  for (const [fault, harm] of [
    ["two hung (SIGSTOP)", (server) => server.pause()],
    ["two refusing connections", (server) => server.stop()],
  ]) {
    const servers = await Promise.all(Array.from({ length: MEMBERS }, () => startRedis()));
    const peer = await QUORUM_PEERS.holdfast(where(servers));
    await acquisitions(peer, "warm", 300);
    const healthy = await acquisitions(peer, "healthy", 1000);
    servers.slice(0, 2).forEach(harm);
    // Long enough for the first hurried reconnects to be over; after that they come once a second.
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const harmed = await acquisitions(peer, "harmed", 1000);
    const [p50, p99] = [percentile(healthy, 0.5), percentile(harmed, 0.99)];
    rows.push([
      fault,
      p50.toFixed(3),
      percentile(healthy, 0.99).toFixed(3),
      percentile(harmed, 0.5).toFixed(3),
      p99.toFixed(3),
      `${(percentile(harmed, 0.5) / p50).toFixed(2)} ×`,
      `${(p99 / percentile(healthy, 0.99)).toFixed(2)} ×`,
      (50 + 3 * p50).toFixed(1),
    ]);
    servers.slice(0, 2).forEach((server) => server.resume());
    await peer.close();
    servers.forEach((server) => server.stop());
  }
  table(
    "Acquisitions with faults, holdfast (1,000 each), ms",
    ["", "healthy p50", "healthy p99", "p50", "p99", "p50 to healthy", "p99 to healthy", "limit + 3 × healthy p50"],
    rows,
  );
}

async function hot(servers) {
  const rows = [];
  for (const name of ["holdfast", "redlock 5 beta", "redis-semaphore"]) {
    const peers = await Promise.all(Array.from({ length: 4 }, () => QUORUM_PEERS[name](where(servers))));
    const waits = [];
    const until = performance.now() + HOT_MS;
    let inside = 0;
    let most = 0;
    const contender = async (_, n) => {
      while (performance.now() < until) {
        const start = performance.now();
        const release = await peers[n % peers.length].take(`hot:${name}`);
        waits.push(performance.now() - start);
        inside += 1;
        most = Math.max(most, inside);
        await new Promise((resolve) => setImmediate(resolve));
        inside -= 1;
        await release().catch(() => {});
      }
    };
    const start = performance.now();
    await Promise.all(Array.from({ length: CONTENDERS }, contender));
    const seconds = (performance.now() - start) / 1000;
    const figures = [percentile(waits, 0.5), percentile(waits, 0.99), Math.max(...waits)].map((ms) => ms.toFixed(0));
    rows.push([name, Math.round(waits.length / seconds), ...figures, most]);
    await Promise.all(peers.map((peer) => peer.close()));
  }
  table(
    `${CONTENDERS} contenders of four clients on one name, ${HOT_MS / 1000} s (peers with their default retries)`,
    ["", "holds/s", "p50 wait, ms", "p99 wait, ms", "longest, ms", "most at once"],
    rows,
  );
}

/** The measures of `npm run compare`, of this store alone: many pairs at once, hand-over, a crowd, what waiting costs. */
async function waiters() {
  const server = await quorum.start();
  const random = chance(1);
  const context = { rounds: 3, random, sizes: SIZES.full, warmUps: 1 };
  const entrants = Object.entries(quorum.contestants)
    .filter(([name]) => name !== "bare commands")
    .map(([name, { open, not }]) => ({ key: name, store: "quorum", contestant: name, open, not, server }));
  const figures = {};
  for (const name of ["flight", "handOver", "hot", "waiting", "heap"]) {
    figures[name] = await MEASURES[name](entrants, context);
  }
  server.stop();
  const of = (measure, key, text) => {
    const figure = figures[measure][key];
    return figure === undefined || figure.not || figure.failed ? "-" : text(figure);
  };
  table(
    "In flight, in line (medians of 3 rounds; the crowd: 4 processes × 4 tasks, their third and fourth second)",
    [
      "",
      "64 in flight, /s",
      "hand-over p50, ms",
      "worst, ms",
      "crowd, holds/s",
      "Jain",
      "p99, ms",
      "requests per waiter in 2 s",
      "kB per waiter",
    ],
    entrants.map(({ key }) => [
      key,
      of("flight", key, ({ perSecond }) => Math.round(perSecond).toLocaleString("en")),
      of("handOver", key, ({ ms }) => ms.toFixed(2)),
      of("handOver", key, ({ worst }) => worst.toFixed(1)),
      of("hot", key, ({ perSecond }) => Math.round(perSecond).toLocaleString("en")),
      of("hot", key, ({ jain }) => jain.toFixed(3)),
      of("hot", key, ({ p99 }) => p99.toFixed(1)),
      of("waiting", key, ({ lines, perWaiter }) =>
        lines.map((n, at) => `${n} in line: ${perWaiter[at].toFixed(2)}`).join(", "),
      ),
      of("heap", key, ({ bytes }) => (bytes / 1000).toFixed(1)),
    ]),
  );
}

process.setMaxListeners(50);
const only = process.argv.slice(2);
const wanted = (part) => only.length === 0 || only.includes(part);
const servers = await Promise.all(Array.from({ length: MEMBERS }, () => startRedis()));
if (wanted("pair")) await uncontended(servers);
if (wanted("faults")) await withFaults();
if (wanted("hot")) await hot(servers);
if (wanted("waiters")) await waiters();
process.exit();
