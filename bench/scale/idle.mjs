// Names that nobody holds: what the server keeps of each, beside a plain key, and what a claim costs beside a million of them.
import { connect } from "../../dist/index.js";
import { interleave, median, ratio } from "../lib/measure.mjs";
import { pause } from "../stores/holdfast.mjs";
import { inChunks, nameOf } from "./names.mjs";

/** Tables that are being made larger are done with it. */
const SETTLE_MS = 3000;
/** As long as a UUID: what redis-semaphore keeps at the key of a lock. */
const VALUE = "v".repeat(36);
const DAY_MS = 24 * 60 * 60 * 1000;

/** Bytes per key at each size; `add(from, to)` makes them. */
async function growth(servers, sizes, add) {
  const before = await servers.keyBytes();
  const keysBefore = await servers.keys();
  const rows = [];
  let from = 0;
  for (const size of sizes) {
    await add(from, size);
    await pause(SETTLE_MS);
    const missing = size - ((await servers.keys()) - keysBefore);
    rows.push({ size, bytes: ((await servers.keyBytes()) - before) / size, missing });
    from = size;
  }
  return rows;
}

/** `SET key value PX …` with keys as long as those of the locks, on servers that are empty before and after. */
export async function plainKeys(servers, sizes, step) {
  const prefix = "p".repeat("holdfast:lock:".length);
  const add = (from, to) =>
    inChunks(
      to,
      (n) => servers.client.set(prefix + nameOf("idle", n), VALUE, "PX", DAY_MS),
      (n) => step(`plain keys: ${n}`),
      500,
      from,
    );
  await servers.empty();
  const rows = await growth(servers, sizes, add);
  await servers.empty();
  return rows;
}

/** Each was taken and given back once. They stay. */
export async function idleNames(servers, sizes, step) {
  const locks = await connect(servers.url);
  await (await locks.mutex("first").acquire()).release();
  await pause(1000);
  const takeAndRelease = async (n) => (await locks.mutex(nameOf("idle", n)).acquire()).release();
  const add = (from, to) => inChunks(to, takeAndRelease, (n) => step(`idle names: ${n}`), 500, from);
  const rows = await growth(servers, sizes, add);
  await locks.close();
  return rows;
}

/** Take and give back names that were never seen, on each of several servers in turn. */
export async function claims(all, rounds) {
  const clients = {};
  for (const [key, servers] of Object.entries(all)) clients[key] = await connect(servers.url);
  let names = 0;
  const pair = async (locks) => (await locks.mutex(nameOf("claim", (names += 1))).acquire()).release();
  const each = (measure) =>
    Object.fromEntries(Object.entries(clients).map(([key, locks]) => [key, () => measure(locks)]));
  const alone = await interleave(
    each(async (locks) => {
      const start = performance.now();
      for (let n = 0; n < 500; n += 1) await pair(locks);
      return (performance.now() - start) * 2;
    }),
    rounds,
  );
  const flying = await interleave(
    each(async (locks) => {
      const start = performance.now();
      await inChunks(3200, () => pair(locks), undefined, 64);
      return ((performance.now() - start) * 1000) / 3200;
    }),
    rounds,
  );
  for (const locks of Object.values(clients)) await locks.close();
  const [base] = Object.keys(all);
  return Object.keys(all).map((key) => ({
    servers: key,
    pairUs: median(alone[key]),
    pairRatio: ratio(alone[key], alone[base]),
    flightUs: median(flying[key]),
    flightRatio: ratio(flying[key], flying[base]),
  }));
}
