// The Redis engine beside raw clients and other libraries, on one local server. Only the ratios mean anything.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import { connect } from "../dist/index.js";
import { heapUsed, interleave, median, ratio, table } from "./lib/measure.mjs";
import { hotRound } from "./lib/processes.mjs";
import { PEERS } from "./lib/redis-peers.mjs";
import { startRedis } from "./lib/redis-server.mjs";

const server = await startRedis();
const admin = new Redis(server.port);
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const millis = () => performance.now();
const only = process.argv.slice(2);
const wanted = (part) => only.length === 0 || only.includes(part);

async function commandCalls(filter = () => true) {
  const stats = await admin.info("commandstats");
  const rows = [...stats.matchAll(/cmdstat_([\w|]+):calls=(\d+)/g)];
  return rows.reduce((sum, [, name, calls]) => (filter(name) ? sum + Number(calls) : sum), 0);
}

async function openAll(names = Object.keys(PEERS)) {
  const peers = {};
  for (const name of names) peers[name] = await PEERS[name](server);
  return peers;
}

const closeAll = (peers) => Promise.all(Object.values(peers).map((peer) => peer.close()));

async function uncontended() {
  const peers = await openAll();
  const one = async ({ take }, name) => (await take(name))();
  const each = (measure) =>
    Object.fromEntries(Object.entries(peers).map(([name, peer]) => [name, () => measure(peer, name)]));
  const alone = await interleave(
    {
      ...each(async (peer, name) => {
        const start = millis();
        for (let n = 0; n < 500; n += 1) await one(peer, `alone:${name}`);
        return (millis() - start) / 500;
      }),
      ping: async () => {
        const start = millis();
        for (let n = 0; n < 500; n += 1) await admin.ping();
        return (millis() - start) / 500;
      },
    },
    7,
    undefined,
    // Until the code of each is compiled: what is small is so at once.
    8,
  );
  const flying = await interleave(
    each(async (peer, name) => {
      const total = 6000;
      let begun = 0;
      const start = millis();
      const task = async (_, at) => {
        while (begun++ < total) await one(peer, `flight:${name}:${at}`);
      };
      await Promise.all(Array.from({ length: 64 }, task));
      return (millis() - start) / total;
    }),
    9,
  );
  const commands = {};
  for (const [name, peer] of Object.entries(peers)) {
    await one(peer, "commands");
    await admin.config("RESETSTAT");
    for (let n = 0; n < 100; n += 1) await one(peer, "commands");
    const inner = name === "holdfast" ? (command) => command.startsWith("eval") : () => true;
    commands[name] = (await commandCalls((command) => !/info|config/.test(command) && inner(command))) / 100;
  }
  await closeAll(peers);
  const raw = flying["raw ioredis"].map((each) => 1 / each);
  table(
    "Uncontended: a pair one after the other (medians of 7 rounds of 500), and 64 in flight (9 rounds of 6,000)",
    ["", "pair, in PINGs", "to redis-semaphore", "64 in flight, pairs/s", "to raw ioredis", "commands a pair"],
    Object.keys(peers).map((name) => {
      const perSecond = flying[name].map((each) => 1000 / each);
      return [
        name,
        ratio(alone[name], alone.ping).toFixed(2),
        `${ratio(alone[name], alone["redis-semaphore"]).toFixed(2)} ×`,
        Math.round(median(perSecond)).toLocaleString("en"),
        `${ratio(
          perSecond,
          raw.map((each) => each * 1000),
        ).toFixed(2)} ×`,
        `${commands[name]}${name === "holdfast" ? " (scripts)" : ""}`,
      ];
    }),
  );
}

async function handOver() {
  const names = ["holdfast", "redis-semaphore", "raw ioredis", "redlock 5 beta"];
  const [holders, waiters] = [await openAll(names), await openAll(names)];
  // Never the same twice: a peer that polls every 10 ms must not fall into step with it.
  const rest = () => pause(20 + 10 * Math.random());
  // Code that was never run is slow for everybody: first some hand-overs without a rest.
  for (const name of names) {
    const until = millis() + 2000;
    while (millis() < until) {
      const release = await holders[name].take("warm");
      const waiting = waiters[name].take("warm");
      await release();
      await (await waiting)();
    }
  }
  const measure = (name) => async () => {
    const times = [];
    for (let n = 0; n < 20; n += 1) {
      const release = await holders[name].take("passed on");
      const waiting = waiters[name].take("passed on");
      await rest();
      const start = millis();
      const released = release();
      const next = await waiting;
      times.push(millis() - start);
      await released;
      await next();
    }
    return median(times);
  };
  const pinger = new Redis(server.port);
  for (let n = 0; n < 5000; n += 1) await pinger.ping();
  const ping = async () => {
    const times = [];
    for (let n = 0; n < 20; n += 1) {
      await rest();
      const start = millis();
      await pinger.ping();
      times.push(millis() - start);
    }
    return median(times);
  };
  const figures = await interleave({ ping, ...Object.fromEntries(names.map((name) => [name, measure(name)])) }, 7);
  pinger.disconnect();
  await closeAll(holders);
  await closeAll(waiters);
  table(
    `Hand-over to a waiter on another connection after 20 to 30 ms of rest: median of 20, 7 interleaved rounds`,
    ["", "p50", "to a PING after the same rest", "to redis-semaphore"],
    ["ping", ...names].map((name) => [
      name,
      `${median(figures[name]).toFixed(2)} ms`,
      `${ratio(figures[name], figures.ping).toFixed(1)} ×`,
      `${ratio(figures[name], figures["redis-semaphore"]).toFixed(3)} ×`,
    ]),
  );
}

/** A process that waits for a lock, or for a message. */
async function hopper(kind, name) {
  const program = join(import.meta.dirname, "lib/hopper.mjs");
  const child = spawn(process.execPath, [program, JSON.stringify({ kind, name, server })], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`the process that waits with ${kind} ended`);
    return value;
  };
  await next();
  return { wait: () => child.stdin.write("\n"), next, stop: () => child.kill("SIGKILL") };
}

async function hops() {
  const names = ["holdfast", "redis-semaphore"];
  const holders = await openAll(names);
  const candidates = { "bare PUBLISH": async () => () => admin.publish("bare PUBLISH", "granted") };
  for (const name of names) candidates[name] = () => holders[name].take(name);
  const hoppers = {};
  for (const kind of Object.keys(candidates)) hoppers[kind] = await hopper(kind, kind);
  const hop = async (kind, restMs) => {
    const { wait, next } = hoppers[kind];
    const pass = await candidates[kind]();
    wait();
    await pause(restMs);
    const start = process.hrtime.bigint();
    const passed = pass();
    const at = BigInt(await next());
    await passed;
    return Number(at - start) / 1e6;
  };
  const measure = (kind) => async () => {
    const times = [];
    // Never the same twice: a peer that polls every 10 ms must not fall into step with it.
    for (let n = 0; n < 30; n += 1) times.push(await hop(kind, 20 + 10 * Math.random()));
    return median(times);
  };
  // Code that was never run is slow for everybody.
  for (const kind of Object.keys(candidates)) for (let n = 0; n < 500; n += 1) await hop(kind, 2);
  const kinds = Object.fromEntries(Object.keys(candidates).map((kind) => [kind, measure(kind)]));
  const figures = await interleave(kinds, 9);
  for (const { stop } of Object.values(hoppers)) stop();
  await closeAll(holders);
  table(
    "Hand-over to a process that has waited for 20 to 30 ms: median of 30, 9 interleaved rounds",
    ["", "p50", "to a bare PUBLISH"],
    Object.keys(candidates).map((kind) => [
      kind,
      `${(median(figures[kind]) * 1000).toFixed(0)} µs`,
      `${ratio(figures[kind], figures["bare PUBLISH"]).toFixed(2)} ×`,
    ]),
  );
}

async function hot() {
  const names = Object.keys(PEERS);
  const rounds = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 0; round < 3; round += 1) {
    for (const name of names) {
      const figures = await hotRound("redis", name, server, {}, () => admin.config("RESETSTAT"));
      const commands = await commandCalls((command) => !/info|config/.test(command));
      rounds[name].push({ ...figures, commands: commands / figures.holds });
    }
  }
  const of = (name, key) => median(rounds[name].map((round) => round[key]));
  const best = Math.max(...names.filter((name) => name !== "holdfast").map((name) => of(name, "perSecond")));
  table(
    "Hot lock: 4 processes × 4 tasks for 2 s, medians of 3 interleaved rounds",
    ["", "holds/s", "to the best peer", "Jain", "p50 wait", "p99 wait", "p99 / p50", "server commands a hold"],
    names.map((name) => [
      name,
      Math.round(of(name, "perSecond")).toLocaleString("en"),
      `${(of(name, "perSecond") / best).toFixed(2)} ×`,
      of(name, "jain").toFixed(3),
      `${of(name, "p50").toFixed(1)} ms`,
      `${of(name, "p99").toFixed(1)} ms`,
      (of(name, "p99") / of(name, "p50")).toFixed(1),
      of(name, "commands").toFixed(1),
    ]),
  );
}

/** A queue that stays `waiters` long: whoever was served queues again. */
async function queueOf(waiters) {
  const [locks, holders] = [await connect(server.url, { leaseMs: 60_000 }), await connect(server.url)];
  const [mutex, theirs] = [locks.mutex(`queue of ${waiters}`), holders.mutex(`queue of ${waiters}`)];
  let hold = await theirs.acquire();
  const before = heapUsed();
  const waiting = Array.from({ length: waiters }, () => mutex.acquire());
  for (const late of waiting) late.catch(() => {});
  const count = async () => {
    for await (const { waiters: line } of locks.inspect({ name: mutex.name })) return line.length;
    return 0;
  };
  while ((await count()) < waiters) await pause(20);
  const heapPerWaiter = (heapUsed() - before) / waiters;
  let at = 0;
  const measure = async () => {
    const start = millis();
    for (let n = 0; n < 300; n += 1) {
      await hold.release();
      hold = await waiting[at];
      waiting[at] = mutex.acquire();
      waiting[at].catch(() => {});
      at = (at + 1) % waiters;
    }
    return (millis() - start) / 300;
  };
  const close = async () => {
    await locks.close();
    await holders.close();
  };
  return { measure, close, heapPerWaiter };
}

async function queues() {
  const sizes = [10, 100, 1000, 10_000];
  const lines = {};
  for (const size of sizes) lines[size] = await queueOf(size);
  const figures = await interleave(Object.fromEntries(sizes.map((size) => [size, lines[size].measure])), 9);
  for (const size of sizes) await lines[size].close();
  table(
    "Hand-over with waiters in the queue, one of which queues again: 9 interleaved rounds of 300",
    ["waiters", "per hand-over", "ratio to 10", "heap per waiter"],
    sizes.map((size) => [
      size.toLocaleString("en"),
      `${median(figures[size]).toFixed(3)} ms`,
      `${ratio(figures[size], figures[10]).toFixed(2)} ×`,
      size < 1000 ? "-" : `${Math.round(lines[size].heapPerWaiter)} B`,
    ]),
  );
}

async function renewals() {
  const count = 10_000;
  const locks = await connect(server.url, { leaseMs: 9000 });
  const holds = [];
  for (let n = 0; n < count; n += 500) {
    const names = Array.from({ length: 500 }, (_, at) => `renewed ${n + at}`);
    holds.push(...(await Promise.all(names.map((name) => locks.mutex(name).acquire()))));
  }
  // Past the first cycle, in which claims taken at odd moments find together.
  await pause(4000);
  const delay = monitorEventLoopDelay({ resolution: 5 });
  const cycles = 4;
  await admin.config("RESETSTAT");
  delay.enable();
  await pause(cycles * 3000);
  delay.disable();
  const calls = await commandCalls((command) => command.startsWith("eval"));
  const lost = holds.filter((hold) => hold.state !== "held").length;
  await locks.close();
  table(
    "10,000 renewed holds over 4 renewal cycles of 3 s",
    ["", ""],
    [
      ["script calls a cycle", (calls / cycles).toFixed(1)],
      ["holds a script call", ((count * cycles) / calls).toFixed(0)],
      ["event-loop delay, p99", `${(delay.percentile(99) / 1e6).toFixed(1)} ms`],
      ["event-loop delay, largest", `${(delay.max / 1e6).toFixed(1)} ms`],
      ["holds lost", lost],
    ],
  );
}

if (wanted("uncontended")) await uncontended();
if (wanted("hand-over")) await handOver();
if (wanted("hops")) await hops();
if (wanted("hot")) await hot();
if (wanted("queues")) await queues();
if (wanted("renewals")) await renewals();
admin.disconnect();
server.stop();
process.exit(0);
