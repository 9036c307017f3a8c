// 100,000 callers at one lock in one turn of the event loop, with the bound that a client has unless told otherwise and without one:
// memory, the time to refuse (calls of that turn, and whether all who were refused knew at its end), and whether the holder notices.
//
//   npm run bench -- bounds [callers]
import { memoryEngine } from "../dist/engines/memory/index.js";
import { connect, TooManyWaitersError } from "../dist/index.js";
import { heapUsed, table } from "./lib/measure.mjs";
import { startRedis } from "./lib/redis-server.mjs";

const callers = Number(process.argv[2] ?? 100_000);
const LEASE_MS = 10_000;
const WAIT_MS = 5_000;
/** As good as none. */
const NO_BOUND = 10_000_000;
const mega = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

async function flood(target, options) {
  const locks = await connect(target, options);
  const events = { lost: 0, jeopardy: 0, limited: 0 };
  for (const type of Object.keys(events)) locks.on(type, () => (events[type] += 1));
  const mutex = locks.mutex("hot");
  const hold = await mutex.acquire({ leaseMs: LEASE_MS });
  // Compiled before it is measured.
  for (let n = 0; n < 1000; n += 1) await mutex.tryAcquire();
  const before = heapUsed();
  const outcomes = { refused: 0, timedOut: 0 };
  const calls = [];
  const startedAt = performance.now();
  for (let n = 0; n < callers; n += 1) {
    const call = mutex.acquire({ waitMs: WAIT_MS }).catch((error) => {
      outcomes[error instanceof TooManyWaitersError ? "refused" : "timedOut"] += 1;
    });
    calls.push(call);
  }
  const toldMs = await new Promise((resolve) => setImmediate(() => resolve(performance.now() - startedAt)));
  const inTime = outcomes.refused;
  const used = heapUsed() - before;
  await Promise.all(calls);
  const { state } = hold;
  // Lost, where nothing bounds the crowd: its heartbeats stood behind theirs.
  await hold.release().catch(() => {});
  calls.length = 0;
  const after = heapUsed() - before;
  await locks.close();
  return { ...outcomes, inTime, toldMs, used, after, state, ...events };
}

const redis = await startRedis();
const rows = [];
try {
  const stores = { memory: () => memoryEngine(), redis: () => redis.url };
  const bounds = { "10,000": {}, none: { maxWaiters: NO_BOUND, maxClaims: NO_BOUND } };
  for (const [store, open] of Object.entries(stores)) {
    for (const [bound, options] of Object.entries(bounds)) {
      const one = await flood(open(), options);
      rows.push([
        `${store}, maxWaiters ${bound}`,
        one.refused.toLocaleString("en"),
        one.inTime === one.refused ? `${((1000 * one.toldMs) / callers).toFixed(1)} µs` : "later",
        `${one.toldMs.toFixed(0)} ms`,
        mega(one.used),
        mega(one.after),
        `${one.state}, ${one.jeopardy} jeopardy, ${one.lost} lost`,
        one.limited,
      ]);
    }
  }
} finally {
  redis.stop();
}
table(
  `${callers.toLocaleString("en")} callers of one lock in one turn (wait ${WAIT_MS} ms, lease ${LEASE_MS} ms)`,
  ["", "refused", "per call", "turn took", "heap while they wait", "heap afterwards", "holder", "events"],
  rows,
);
