// One client holds many names: what their renewal costs, and whether each is still held at the end.
import { readFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { openRedis } from "../../dist/engines/redis/index.js";
import { connect } from "../../dist/index.js";
import { heapUsed } from "../lib/measure.mjs";
import { pause } from "../stores/holdfast.mjs";
import { startBusy, stopBusy } from "./busy.mjs";
import { inChunks, nameOf, prefixOf } from "./names.mjs";

/** Long enough for every hold to have been renewed once: what was taken at odd moments has found together. */
const FIRST_CYCLE_MS = 4000;
/** From then on, until the code that renews was run often enough to be compiled. */
const WARM_MS = 8000;
const BASE_MS = 5000;

/** A client that counts the renewals that the server answered. */
async function openCounted(url) {
  const engine = await openRedis(url);
  const counts = { renewals: 0, unanswered: 0, slowestMs: 0 };
  const renew = engine.renew.bind(engine);
  engine.renew = async (requests) => {
    const start = performance.now();
    try {
      const answers = await renew(requests);
      const unknown = answers.filter(({ kind }) => kind === "unknown").length;
      counts.renewals += answers.length - unknown;
      counts.unanswered += unknown;
      return answers;
    } catch (error) {
      counts.unanswered += requests.length;
      throw error;
    } finally {
      counts.slowestMs = Math.max(counts.slowestMs, performance.now() - start);
    }
  };
  const locks = await connect(engine);
  const close = async () => {
    await locks.close();
    await engine[Symbol.asyncDispose]();
  };
  return { locks, counts, close };
}

/** Counts what is lost from the moment of its grant on: a hold may be lost while others are still being taken. */
class Losses {
  count = 0;

  async watched(acquiring) {
    const hold = await acquiring;
    if (hold.signal.aborted) this.count += 1;
    else hold.signal.addEventListener("abort", () => (this.count += 1));
    return hold;
  }
}

/** What all processes of this machine have used of the processors so far; Linux counts in hundredths of a second. */
function machineUs() {
  const [user, nice, system, , , irq, softirq] = readFileSync("/proc/stat", "utf8")
    .split(/\s+/)
    .slice(1, 8)
    .map(Number);
  return (user + nice + system + irq + softirq) * 10_000;
}

/** What the clients of this process and the servers use of the processors, and how many renewals they do with it. */
async function watch(servers, allCounts, forMs) {
  const sum = (figure) => allCounts.reduce((total, counts) => total + counts[figure], 0);
  const delay = monitorEventLoopDelay({ resolution: 5 });
  for (const counts of allCounts) counts.slowestMs = 0;
  const before = { renewals: sum("renewals"), unanswered: sum("unanswered"), calls: await servers.scriptCalls() };
  const [serverUs, client, start] = [await servers.cpuUs(), process.cpuUsage(), performance.now()];
  const machineBefore = machineUs();
  delay.enable();
  await pause(forMs);
  delay.disable();
  const { user, system } = process.cpuUsage(client);
  const [clientUs, machine, ms] = [user + system, machineUs() - machineBefore, performance.now() - start];
  const serversUs = (await servers.cpuUs()) - serverUs;
  return {
    ms,
    clientUs,
    serverUs: serversUs,
    otherCores: Math.max(0, machine - clientUs - serversUs) / (ms * 1000),
    calls: (await servers.scriptCalls()) - before.calls,
    renewals: sum("renewals") - before.renewals,
    unanswered: sum("unanswered") - before.unanswered,
    slowestMs: Math.max(0, ...allCounts.map((counts) => counts.slowestMs)),
    longestDelayMs: delay.max / 1e6,
  };
}

/** Per renewal, less what both sides use while nothing is held. */
function perRenewal(seen, base) {
  const { ms, renewals, unanswered, calls, slowestMs, longestDelayMs, otherCores } = seen;
  const share = (us) => (seen[us] - (base[us] * ms) / base.ms) / renewals;
  return {
    perSecond: (renewals * 1000) / ms,
    clientUs: share("clientUs"),
    serverUs: share("serverUs"),
    perCall: renewals / calls,
    slowestMs,
    longestDelayMs,
    unanswered,
    otherCores,
  };
}

/** So that the first size is not the one that pays for code which was never run. */
export async function warmUp(servers) {
  const { locks, close } = await openCounted(servers.url);
  await inChunks(5000, (n) => locks.mutex(nameOf("warm", n)).acquire({ leaseMs: 1500 }));
  await pause(4000);
  await close();
  await servers.empty();
}

/**
 * @param {{ size: number, windowMs: number, step: (text: string) => void }} options
 * @returns a row without and one with two processes that spin; `otherCores` is what all else on the machine used meanwhile
 */
export async function holdMany(servers, { size, windowMs, step }) {
  step(`${size} held: connecting`);
  const { locks, counts, close } = await openCounted(servers.url);
  // The scripts are loaded now: they are no part of what a name takes.
  await (await locks.mutex("first").acquire()).release();
  await pause(1000);
  const base = await watch(servers, [counts], BASE_MS);
  const [bytesBefore, heapBefore] = [await servers.keyBytes(), heapUsed()];
  const losses = new Losses();
  const begun = performance.now();
  const holds = await inChunks(
    size,
    (n) => losses.watched(locks.mutex(nameOf("held", n)).acquire()),
    (taken) => step(`${size} held: ${taken} taken`),
  );
  const takenMs = performance.now() - begun;
  await pause(FIRST_CYCLE_MS);
  const bytes = ((await servers.keyBytes()) - bytesBefore) / size;
  const rows = [];
  for (const busy of [false, true]) {
    step(`${size} held, ${busy ? "two processes spin" : "nothing spins"}: renewing for ${windowMs / 1000} s`);
    if (busy) startBusy();
    await pause(busy ? 1000 : WARM_MS);
    const seen = await watch(servers, [counts], windowMs);
    stopBusy();
    rows.push({ size, busy, ...perRenewal(seen, base), lost: losses.count });
    step(
      `${size} held: ${seen.renewals} renewals, the slowest call ${Math.round(seen.slowestMs)} ms, ${losses.count} lost`,
    );
  }
  // Last: a full collection throws away compiled code, and the next renewals would pay for it.
  const heapBytes = (heapUsed() - heapBefore) / size;
  step(`${size} held: asking the server for each`);
  const wrong = size - (await countKnown(locks, holds));
  step(`${size} held: giving back`);
  await inChunks(size, (n) => holds[n].release().catch(() => {}));
  await close();
  return rows.map((row) => ({ ...row, takenMs, bytes, heapBytes, wrong }));
}

/** How many of the holds the server has as their holder does. Page by page: the same client has to go on renewing. */
async function countKnown(locks, holds) {
  const byName = new Map(holds.map((hold) => [hold.name, hold]));
  let known = 0;
  for await (const { name, holders } of locks.inspect({ prefix: prefixOf("held") })) {
    const hold = byName.get(name);
    // A hold whose heartbeats are late is still held: its holder is warned, and nobody else can have it.
    const counts = hold?.state === "held" || hold?.state === "jeopardy";
    if (counts && holders.length === 1 && holders[0].token === hold.token) known += 1;
    byName.delete(name);
  }
  return known;
}

/** Many clients in this process, each with some holds: what a server has to do for each of them. */
export async function fleet(servers, { clients: count, holdsEach, windowMs, step }) {
  step(`fleet: connecting ${count} clients`);
  const first = await openCounted(servers.url);
  await pause(2000);
  const before = { bytes: await servers.clientBytes(), connections: await servers.connections() };
  const empty = await watch(servers, [], BASE_MS);
  const clients = await inChunks(count, () => openCounted(servers.url), undefined, 20);
  const allCounts = clients.map(({ counts }) => counts);
  // Until what connecting left behind is done: it would count as what clients without holds cost.
  await pause(WARM_MS);
  const bytes = ((await servers.clientBytes()) - before.bytes) / count;
  const connections = ((await servers.connections()) - before.connections) / count;
  const idle = await watch(servers, allCounts, windowMs);
  const idleServerUs = (idle.serverUs / idle.ms - empty.serverUs / empty.ms) * (1000 / count);
  const rows = [];
  const losses = new Losses();
  let held = 0;
  for (const each of holdsEach) {
    step(`fleet: ${count} clients with ${each} holds each`);
    // At odd moments, as clients of a fleet do: in step they would be one burst every third of a lease.
    const moments = clients.map((_, n) => (n * FIRST_CYCLE_MS) / count);
    await Promise.all(
      clients.map(async ({ locks }, n) => {
        await pause(moments[n]);
        const take = (_, at) => losses.watched(locks.mutex(`fleet:${n}:${held + at}`).acquire());
        await Promise.all(Array.from({ length: each - held }, take));
      }),
    );
    held = each;
    await pause(FIRST_CYCLE_MS);
    rows.push({ each, ...perRenewal(await watch(servers, allCounts, windowMs), idle), lost: losses.count });
  }
  step("fleet: closing");
  await inChunks(count, (n) => clients[n].close(), undefined, 20);
  await first.close();
  return { clients: count, bytes, connections, idleServerUs, rows };
}
