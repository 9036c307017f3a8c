// How an engine grows: held names, idle names, clients. Prints the growth curves, and fails when a hold was lost.
//
//   npm run bench -- scale [single | cluster] [held sizes, by comma] [idle sizes, by comma] [--json file]
//   npm run bench -- scale [postgres | mysql] [held sizes, by comma] [idle sizes, by comma] [pairs of churn]
//
// `single` and `cluster` are Redis; `--json` keeps their figures in a file, beside each other.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { parseArgs } from "node:util";
import { progress } from "./lib/measure.mjs";
import { fleet, holdMany, warmUp } from "./scale/held.mjs";
import { claims, idleNames, plainKeys } from "./scale/idle.mjs";
import { startCluster, startSingle } from "./scale/servers.mjs";
import { growth } from "./scale/sql.mjs";
import { printAll } from "./scale/tables.mjs";

const { values, positionals } = parseArgs({ options: { json: { type: "string" } }, allowPositionals: true });
const [kind = "single", held = "1000,10000,100000", idle = "10000,100000,1000000"] = positionals;
/** An hour of a hundred pairs a second. */
const CHURN_PAIRS = 360_000;
const LOCK_TABLES = ["postgres", "mysql"];
const START = { single: startSingle, cluster: startCluster };
const [heldSizes, idleSizes] = [held, idle].map((list) => list.split(",").map(Number));
const areSizes = [...heldSizes, ...idleSizes].every((size) => Number.isSafeInteger(size) && size > 0 && size < 1e7);
if (!(kind in START || LOCK_TABLES.includes(kind)) || !areSizes) {
  console.error("usage: npm run bench -- scale [single | cluster] [held sizes] [idle sizes] [--json file]");
  console.error("       npm run bench -- scale [postgres | mysql] [held sizes] [idle sizes] [pairs of churn]");
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const begun = performance.now();
/** What takes long says where it is, also in a log. */
const step = (text) => {
  if (process.stderr.isTTY) progress(text);
  else console.error(`${((performance.now() - begun) / 1000).toFixed(0).padStart(5)} s  ${text}`);
};
if (LOCK_TABLES.includes(kind)) {
  const pairs = Number(positionals[3] ?? CHURN_PAIRS);
  const right = await growth(kind, { heldSizes, idleSizes, pairs, step });
  process.exit(right ? 0 : 1);
}
const largest = Math.max(...heldSizes);
const small = largest < 10_000;
const windowMs = small ? 8000 : 20_000;

const figures = await measure();
progress("");
printAll(kind, figures);
if (values.json !== undefined) keep(values.json);
const lost = figures.held.filter((row) => row.lost + row.wrong > 0).length + figures.fleet.rows.at(-1).lost;
const missing = figures.idle.filter((row) => row.missing > 0).length;
if (lost + missing > 0) console.error("\nA hold or a name was lost.");
process.exit(lost + missing > 0 ? 1 : 0);

async function measure() {
  const load = loadavg()[0];
  const servers = await START[kind]();
  const about = { ...aboutRun(load), redis: await servers.version() };
  step("warming up");
  await warmUp(servers);
  const sizes = [...new Set([...heldSizes, ...idleSizes])].toSorted((a, b) => a - b);
  const plain = await plainKeys(servers, sizes, step);
  const held = [];
  for (const size of heldSizes) {
    held.push(...(await holdMany(servers, { size, windowMs, step })).map((row) => ({ ...row, idle: 0 })));
    await servers.empty();
  }
  const clients = small ? 50 : 500;
  const ofFleet = await fleet(servers, { clients, holdsEach: [1, 10, 100], windowMs, step });
  await servers.empty();
  const idle = await idleNames(servers, idleSizes, step);
  const beside = await claimsBeside(servers);
  const crowded = await holdMany(servers, { size: largest, windowMs, step });
  held.push(...crowded.map((row) => ({ ...row, idle: idleSizes.at(-1) })));
  servers.stop();
  return {
    about: { ...about, minutes: (performance.now() - begun) / 60_000 },
    plain,
    held,
    idle,
    claims: beside,
    fleet: ofFleet,
  };
}

async function claimsBeside(servers) {
  step("claims beside idle names");
  const empty = await START[kind]();
  const rows = await claims({ empty, idle: servers }, 7);
  empty.stop();
  return rows;
}

function aboutRun(load) {
  const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { cwd: import.meta.dirname, encoding: "utf8" });
  const gib = Math.round(totalmem() / 2 ** 30);
  return {
    date: new Date().toISOString(),
    command: ["npm run bench -- scale", ...process.argv.slice(2)].join(" "),
    commit: commit.trim(),
    machine: `${cpus().length} cores (${cpus()[0].model.trim()}), ${gib} GiB`,
    node: process.version.slice(1),
    load,
  };
}

function keep(file) {
  const known = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  writeFileSync(file, `${JSON.stringify({ ...known, [kind]: figures }, null, 1)}\n`);
}
