// Redlock over five local servers beside redlock 5, redis-semaphore and bare commands. Only the ratios mean anything.
import { randomBytes } from "node:crypto";
import { Redis } from "ioredis";
import { RedlockMutex } from "redis-semaphore";
import Redlock from "redlock5";
import { connect } from "../dist/index.js";
import { interleave, median, ratio, table } from "./lib/measure.mjs";
import { startRedis } from "./lib/redis-server.mjs";

const LEASE_MS = 10_000;
const MEMBERS = 5;
const PAIRS = 300;
const CONTENDERS = 32;
const HOT_MS = 2_000;
const COMPARE_AND_DELETE = `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`;
const percentile = (numbers, share) => {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
};
const clientsOf = (servers) =>
  servers.map(({ port }) => {
    const client = new Redis(port, { enableOfflineQueue: false, maxRetriesPerRequest: 0 });
    client.on("error", () => {});
    return client;
  });

/** Five `SET NX PX` at once, five compare-and-deletes at once: what any Redlock costs at least. */
async function bare(servers) {
  const clients = clientsOf(servers);
  for (const client of clients) client.defineCommand("compareAndDelete", { numberOfKeys: 1, lua: COMPARE_AND_DELETE });
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  return {
    async take(name) {
      const value = randomBytes(16).toString("base64url");
      await Promise.all(clients.map((client) => client.set(name, value, "PX", LEASE_MS, "NX")));
      return () => Promise.all(clients.map((client) => client.compareAndDelete(name, value)));
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

async function holdfast(servers) {
  const locks = await connect(`redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`);
  return {
    async take(name) {
      const hold = await locks.mutex(name).acquire({ leaseMs: LEASE_MS });
      return () => hold.release();
    },
    close: () => locks.close(),
  };
}

async function redlock5(servers) {
  const clients = clientsOf(servers);
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  const redlock = new Redlock(clients, { retryCount: -1 });
  redlock.on("error", () => {});
  return {
    async take(name) {
      const lock = await redlock.acquire([name], LEASE_MS);
      return () => lock.release();
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

async function redisSemaphore(servers) {
  const clients = clientsOf(servers);
  await Promise.all(clients.map((client) => new Promise((resolve) => client.once("ready", resolve))));
  return {
    async take(name) {
      const mutex = new RedlockMutex(clients, name, { lockTimeout: LEASE_MS, acquireTimeout: 60_000 });
      await mutex.acquire();
      return () => mutex.release();
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}

const PEERS = { "bare commands": bare, holdfast, "redlock 5": redlock5, "redis-semaphore": redisSemaphore };

async function open(servers, names = Object.keys(PEERS)) {
  const peers = {};
  for (const name of names) peers[name] = await PEERS[name](servers);
  return peers;
}

const closeAll = (peers) => Promise.all(Object.values(peers).map((peer) => peer.close()));

async function uncontended(servers) {
  const peers = await open(servers);
  const admin = new Redis(servers[0].port);
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
    `Uncontended pair over ${MEMBERS} servers, one after the other (medians of 9 interleaved rounds of ${PAIRS})`,
    ["", "ms", "to bare commands", "to redlock 5", "to redis-semaphore", "commands per server"],
    Object.keys(peers).map((name) => [
      name,
      median(figures[name]).toFixed(3),
      `${ratio(figures[name], figures["bare commands"]).toFixed(2)} ×`,
      `${ratio(figures[name], figures["redlock 5"]).toFixed(2)} ×`,
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
    const servers = await Promise.all(Array.from({ length: MEMBERS }, startRedis));
    const peer = await holdfast(servers);
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
  for (const name of ["holdfast", "redlock 5", "redis-semaphore"]) {
    const peers = await Promise.all(Array.from({ length: 4 }, () => PEERS[name](servers)));
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

process.setMaxListeners(50);
const only = process.argv.slice(2);
const wanted = (part) => only.length === 0 || only.includes(part);
const servers = await Promise.all(Array.from({ length: MEMBERS }, startRedis));
if (wanted("pair")) await uncontended(servers);
if (wanted("faults")) await withFaults();
if (wanted("hot")) await hot(servers);
process.exit();
