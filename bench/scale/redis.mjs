// How the Redis engine grows, on one server or a Cluster.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, loadavg, totalmem } from "node:os";
import { join } from "node:path";
import { progress } from "../lib/measure.mjs";
import { fleet, holdMany, warmUp } from "./held.mjs";
import { claims, idleNames, plainKeys } from "./idle.mjs";
import { startCluster, startSingle } from "./servers.mjs";
import { printAll } from "./tables.mjs";

const START = { single: startSingle, cluster: startCluster };
const LAB = join(import.meta.dirname, "../../lab");

/** @returns whether nothing was lost */
export async function scaleRedis(kind, { heldSizes, idleSizes, step, write }) {
  const begun = performance.now();
  const load = loadavg()[0];
  const largest = Math.max(...heldSizes);
  const small = largest < 10_000;
  const windowMs = small ? 8000 : 20_000;
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
  const beside = await claimsBeside(kind, servers, step);
  const crowded = await holdMany(servers, { size: largest, windowMs, step });
  held.push(...crowded.map((row) => ({ ...row, idle: idleSizes.at(-1) })));
  servers.stop();
  const minutes = (performance.now() - begun) / 60_000;
  const figures = { about: { ...about, minutes }, plain, held, idle, claims: beside, fleet: ofFleet };
  progress("");
  printAll(kind, figures);
  if (write) keep(kind, figures);
  const lost = held.filter((row) => row.lost + row.wrong > 0).length + ofFleet.rows.at(-1).lost;
  return lost + idle.filter((row) => row.missing > 0).length === 0;
}

async function claimsBeside(kind, servers, step) {
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

function keep(kind, figures) {
  const file = join(LAB, "results/scale.json");
  const known = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
  writeFileSync(file, `${JSON.stringify({ ...known, [kind]: figures }, null, 1)}\n`);
  if (Object.keys(START).every((one) => one === kind || one in known)) writePage();
}

export function writePage() {
  const node = ["--import", join(LAB, "lib/typescript.mjs"), join(LAB, "scale/write.ts")];
  execFileSync(process.execPath, node, { stdio: "inherit" });
}
