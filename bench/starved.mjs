// A synchronous loop of 3 s under a lease of 2 s, renewed by the program's own thread and by another (`renewIn: "worker"`), and a program that
// hangs: who keeps the lock, what the hold says in the same turn, and when another process gets it.
//
//   npm run bench -- starved [stores, by comma]
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { connect } from "../dist/index.js";
import { startMariadb, startPostgres } from "./lib/databases.mjs";
import { startEtcd } from "./lib/etcd-server.mjs";
import { table } from "./lib/measure.mjs";
import { startRedis } from "./lib/redis-server.mjs";
import { newFolder } from "./lib/room.mjs";
import { startZooKeeper } from "./lib/zookeeper-server.mjs";

const LEASE_MS = 2_000;
const BUSY_MS = 3_000;
const HUNG_MS = 12_000;
const STALL_MS = 1_000;

/** Another process that wants the lock: it stands in the queue before the loop begins, and tells when it got it. */
const RIVAL = `
  import { connect } from ${JSON.stringify(new URL("../dist/index.js", import.meta.url).href)};
  const locks = await connect(process.argv[1]);
  locks.on("queued", () => console.log("queued"));
  const hold = await locks.mutex("starved").acquire();
  console.log(Date.now());
  await hold.release();
  await locks.close();
`;

async function starve(url, options, busyMs) {
  const locks = await connect(url, { leaseMs: LEASE_MS, ...options });
  const hold = await locks.mutex("starved").acquire();
  const rival = spawn(process.execPath, ["--input-type=module", "-e", RIVAL, url], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface(rival.stdout);
  const told = [];
  lines.on("line", (line) => told.push(line));
  await once(lines, "line");
  const startedAt = Date.now();
  const end = performance.now() + busyMs;
  while (performance.now() < end);
  const { state } = hold;
  const endedAt = Date.now();
  await hold.release().catch(() => {});
  await once(rival, "exit");
  await locks.close();
  const gotAt = Number(told.at(-1));
  const when = `${((gotAt - startedAt) / 1000).toFixed(1)} s${gotAt < endedAt ? "" : ", after the release"}`;
  return [state, when];
}

/** Three Redis servers that decide together. */
async function startQuorum() {
  const members = await Promise.all([startRedis(), startRedis(), startRedis()]);
  const hosts = members.map(({ port }) => `127.0.0.1:${port}`);
  return { url: `redlock://${hosts.join(",")}`, stop: () => members.forEach(({ stop }) => stop()) };
}

async function startSqlite() {
  const folder = newFolder();
  return { url: `sqlite:${join(folder, "locks")}`, stop: () => rmSync(folder, { recursive: true, force: true }) };
}

const STARTS = {
  sqlite: startSqlite,
  redis: startRedis,
  postgres: startPostgres,
  mysql: startMariadb,
  etcd: startEtcd,
  quorum: startQuorum,
  zookeeper: startZooKeeper,
};
const rows = [];
for (const store of (process.argv[2] ?? Object.keys(STARTS).join(",")).split(",")) {
  const { url, stop } = await STARTS[store]();
  const hangs = `hangs for ${HUNG_MS} ms, worker with stallMs ${STALL_MS}`;
  const runs = [
    { title: `loop of ${BUSY_MS} ms, own thread`, options: {}, busyMs: BUSY_MS },
    { title: `loop of ${BUSY_MS} ms, worker`, options: { renewIn: "worker" }, busyMs: BUSY_MS },
    { title: hangs, options: { renewIn: "worker", stallMs: STALL_MS }, busyMs: HUNG_MS },
  ];
  try {
    for (const { title, options, busyMs } of runs) {
      const told = await starve(url, options, busyMs).catch((error) => [error.code ?? error.message, ""]);
      rows.push([`${store}: ${title}`, ...told]);
    }
  } finally {
    await stop();
  }
}
table(`A lease of ${LEASE_MS} ms`, ["", "the hold says", "another process got it after"], rows);
