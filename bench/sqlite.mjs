// The sqlite engine beside bare transactions of the same library, and beside proper-lockfile.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import lockfile from "proper-lockfile";
import { connect } from "../dist/index.js";
import { interleave, median, ratio, table } from "./lib/measure.mjs";
import { hotRound } from "./lib/processes.mjs";
import { libraryName, openSqlite, RETRY, sqlite } from "./stores/sqlite.mjs";

const nanos = () => Number(process.hrtime.bigint());
const micros = (value) => `${(value / 1000).toFixed(1)} µs`;
const millis = (value) => `${(value / 1e6).toFixed(2)} ms`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function timed(count, work) {
  const start = nanos();
  for (let n = 0; n < count; n += 1) await work(n);
  return (nanos() - start) / count;
}

/** The other end of a hand-over: takes the lock when told, says when it had it, gives it back. */
if (process.send) {
  const [, , kind, path] = process.argv;
  const locks = kind === "holdfast" ? await connect(`sqlite:${path}`) : null;
  const take = {
    holdfast: async () => {
      const hold = await locks.mutex("hand-over").acquire();
      const at = nanos();
      await hold.release();
      return at;
    },
    "proper-lockfile": async () => {
      const release = await lockfile.lock(path, { retries: RETRY });
      const at = nanos();
      await release();
      return at;
    },
  }[kind];
  const obey = async (word) => {
    if (word === "take") {
      process.send({ at: await take() });
    } else {
      await locks?.close();
      process.exit(0);
    }
  };
  process.on("message", (word) => void obey(word));
  process.send("ready");
} else {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  try {
    await main(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A table with one row in a file with the engine's settings: what one write costs in this library. */
async function bareWrites(path) {
  const database = openSqlite(path);
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = NORMAL");
  database.exec("CREATE TABLE bare (id INTEGER PRIMARY KEY, value INTEGER); INSERT INTO bare VALUES (1, 0)");
  const update = database.prepare("UPDATE bare SET value = ? WHERE id = 1");
  const [begin, commit] = [database.prepare("BEGIN IMMEDIATE"), database.prepare("COMMIT")];
  // Never the same value twice: SQLite does not write a row that is as it was.
  let value = 0;
  const statement = () => update.run((value += 1));
  const transaction = () => {
    begin.run();
    statement();
    commit.run();
  };
  return { transaction, statement, close: () => database.close() };
}

async function pairs(folder) {
  const bare = await bareWrites(join(folder, "bare.db"));
  const locks = await connect(`sqlite:${join(folder, "pairs.db")}`);
  const mutex = locks.mutex("pair");
  const file = join(folder, "resource");
  writeFileSync(file, "");
  const figures = await interleave(
    {
      "two bare transactions": () => timed(500, () => (bare.transaction(), bare.transaction())),
      "two bare statements": () => timed(500, () => (bare.statement(), bare.statement())),
      holdfast: () => timed(500, async () => (await mutex.acquire()).release()),
      "proper-lockfile": () => timed(50, async () => (await lockfile.lock(file))()),
    },
    25,
  );
  bare.close();
  await locks.close();
  return figures;
}

/** From the call that gives back in this process to the lock in hand in another one. */
async function handOvers(folder, kind, take, isQueued) {
  const path = join(folder, `${kind}.db`);
  if (kind === "proper-lockfile") writeFileSync(path, "");
  const child = fork(import.meta.filename, [kind, path]);
  await once(child, "message");
  const waits = [];
  for (let n = 0; n < (kind === "holdfast" ? 300 : 100); n += 1) {
    const release = await take(path);
    child.send("take");
    await isQueued(path);
    const answer = once(child, "message");
    const start = nanos();
    await release();
    waits.push((await answer)[0].at - start);
  }
  child.send("end");
  await once(child, "exit");
  return waits.toSorted((a, b) => a - b);
}

async function handOverTable(folder) {
  const locks = await connect(`sqlite:${join(folder, "holdfast.db")}`);
  const mutex = locks.mutex("hand-over");
  const waiting = async () => {
    for await (const state of locks.inspect({ name: "hand-over" })) return state.waiters.length > 0;
    return false;
  };
  const ours = await handOvers(
    folder,
    "holdfast",
    async () => {
      const hold = await mutex.acquire();
      return () => hold.release();
    },
    async () => {
      while (!(await waiting())) await sleep(1);
      await sleep(2);
    },
  );
  await locks.close();
  const theirs = await handOvers(
    folder,
    "proper-lockfile",
    (path) => lockfile.lock(path, { retries: RETRY }),
    // It keeps no queue that could be looked at; some time for its first try, and a random part of its pause.
    () => sleep(20 + 10 * Math.random()),
  );
  const row = (name, waits) => [
    name,
    millis(waits[waits.length >> 1]),
    millis(waits[Math.floor(waits.length * 0.99)]),
    millis(waits.at(-1)),
  ];
  table(
    "Hand-over to a waiter in another process (proper-lockfile looks every 10 ms)",
    ["", "p50", "p99", "max"],
    [row("holdfast", ours), row("proper-lockfile", theirs)],
  );
}

/** A queue that stays `waiters` long: whoever was served queues again. */
async function queueOf(folder, waiters) {
  const locks = await connect(`sqlite:${join(folder, `queue-${waiters}.db`)}`);
  const mutex = locks.mutex("queue");
  let hold = await mutex.acquire();
  const waiting = Array.from({ length: waiters }, () => mutex.acquire());
  let at = 0;
  const measure = () =>
    timed(200, async () => {
      await hold.release();
      hold = await waiting[at];
      waiting[at] = mutex.acquire();
      at = (at + 1) % waiters;
    });
  const close = async () => {
    for (const late of waiting) late.catch(() => {});
    await locks.close();
  };
  return { measure, close };
}

/** Names apart, as many pairs at a time as a busy server has requests. */
async function inFlight(folder) {
  const locks = await connect(`sqlite:${join(folder, "flight.db")}`);
  const pair = async (_, n) => (await locks.mutex(`flight ${n}`).acquire()).release();
  const figures = {};
  for (const many of [1, 8, 64]) {
    const rounds = Math.ceil(640 / many);
    figures[many] = () => timed(rounds, () => Promise.all(Array.from({ length: many }, pair))).then((ns) => ns / many);
  }
  const rounds = await interleave(figures, 15);
  await locks.close();
  table(
    "Pairs on names apart, 15 interleaved rounds",
    ["in flight", "per pair", "ratio to one at a time"],
    Object.entries(rounds).map(([many, values]) => [
      many,
      micros(median(values)),
      `${ratio(values, rounds[1]).toFixed(2)} ×`,
    ]),
  );
}

/** Four processes with four tasks each fight for one lock: `npm run bench -- hot sqlite` shows other shapes. */
async function hot() {
  const server = await sqlite.start();
  const names = ["holdfast", "bare table", "proper-lockfile"];
  const round = (name) => () => hotRound("sqlite", name, server.at);
  const figures = await interleave(Object.fromEntries(names.map((name) => [name, round(name)])), 5, undefined, 0);
  server.stop();
  const of = (name, figure) => median(figures[name].map((one) => one[figure]));
  table(
    "Hot lock, 4 processes × 4 tasks, 5 interleaved rounds (those that poll keep what they have: see Jain)",
    ["", "holds/s", "Jain", "unluckiest", "p50 ms", "p99 ms"],
    names.map((name) => [
      name,
      Math.round(of(name, "perSecond")).toLocaleString("en"),
      of(name, "jain").toFixed(3),
      of(name, "unluckiest").toFixed(2),
      of(name, "p50").toFixed(2),
      of(name, "p99").toFixed(1),
    ]),
  );
}

async function main(folder) {
  const figures = await pairs(folder);
  const base = figures["two bare transactions"];
  table(
    `Uncontended pair (acquire + release) on ${libraryName}, 25 interleaved rounds`,
    ["", "per pair", "ratio to two bare transactions"],
    Object.entries(figures).map(([name, values]) => [
      name,
      micros(median(values)),
      `${ratio(values, base).toFixed(2)} ×`,
    ]),
  );
  await inFlight(folder);
  await handOverTable(folder);
  await hot();
  const sizes = [10, 1000];
  const queues = {};
  for (const size of sizes) queues[size] = await queueOf(folder, size);
  const rounds = await interleave(Object.fromEntries(sizes.map((size) => [size, queues[size].measure])), 15);
  table(
    "Hand-over within one process with waiters in the queue, 15 interleaved rounds of 200",
    ["waiters", "per hand-over", "ratio to 10"],
    sizes.map((size) => [
      size.toLocaleString("en"),
      micros(median(rounds[size])),
      `${ratio(rounds[size], rounds[10]).toFixed(2)} ×`,
    ]),
  );
  for (const size of sizes) await queues[size].close();
}
