// The memory engine beside async-mutex: what the contract costs when the store costs nothing.
import { Mutex } from "async-mutex";
import { memoryEngine } from "../dist/engines/memory/index.js";
import { connect } from "../dist/index.js";
import { heapUsed, interleave, median, ratio, table } from "./lib/measure.mjs";

/** Longer queues than a client takes unless told. */
const open = () => connect(memoryEngine(), { maxWaiters: 1_000_000 });
const nanos = () => Number(process.hrtime.bigint());

async function timed(count, work) {
  const start = nanos();
  await work();
  return (nanos() - start) / count;
}

async function pairs() {
  const count = 20_000;
  const locks = await open();
  const ours = locks.mutex("pair");
  const peer = new Mutex();
  const figures = await interleave(
    {
      holdfast: () =>
        timed(count, async () => {
          for (let n = 0; n < count; n += 1) await (await ours.acquire()).release();
        }),
      "async-mutex": () =>
        timed(count, async () => {
          for (let n = 0; n < count; n += 1) (await peer.acquire())();
        }),
    },
    9,
  );
  await locks.close();
  return figures;
}

/** So many tasks at once, which share one name or have one each. */
async function crowd(tasks, names) {
  const each = Math.ceil(40_000 / tasks);
  const locks = await open();
  const ours = Array.from({ length: names }, (_, at) => locks.mutex(`crowd-${at}`));
  const peers = Array.from({ length: names }, () => new Mutex());
  const all = (work) =>
    timed(tasks * each, () => Promise.all(Array.from({ length: tasks }, (_, at) => work(at % names))));
  const figures = await interleave(
    {
      holdfast: () =>
        all(async (at) => {
          for (let n = 0; n < each; n += 1) await (await ours[at].acquire()).release();
        }),
      "async-mutex": () =>
        all(async (at) => {
          for (let n = 0; n < each; n += 1) (await peers[at].acquire())();
        }),
    },
    9,
  );
  await locks.close();
  return figures;
}

/** A queue that stays `waiters` long: whoever was served queues again. Hand-overs are timed in rounds, in turn with the others. */
async function queueOf(waiters) {
  const locks = await open();
  const mutex = locks.mutex("queue");
  let hold = await mutex.acquire();
  const before = heapUsed();
  const waiting = [];
  // In portions: on a busy machine 100,000 at once would hold up the event loop, and with it the first ones' heartbeats.
  while (waiting.length < waiters) {
    for (let n = Math.min(1000, waiters - waiting.length); n > 0; n -= 1) waiting.push(mutex.acquire());
    await new Promise(setImmediate);
  }
  const heapPerWaiter = (heapUsed() - before) / waiters;
  let at = 0;
  const measure = () =>
    timed(2000, async () => {
      for (let n = 0; n < 2000; n += 1) {
        await hold.release();
        hold = await waiting[at];
        waiting[at] = mutex.acquire();
        at = (at + 1) % waiters;
      }
    });
  const close = async () => {
    for (const late of waiting) late.catch(() => {});
    await locks.close();
  };
  return { measure, close, heapPerWaiter };
}

async function heldNames(count) {
  const locks = await open();
  const before = heapUsed();
  const holds = [];
  for (let n = 0; n < count; n += 1) holds.push(await locks.mutex(`name-${n}`).acquire());
  const perHold = (heapUsed() - before) / count;
  await locks.close();
  return perHold;
}

const micros = (value) => `${(value / 1000).toFixed(2)} µs`;
const compare = (figures) =>
  Object.entries(figures).map(([name, values]) => [
    name,
    micros(median(values)),
    `${ratio(values, figures["async-mutex"]).toFixed(1)} ×`,
  ]);

table(
  "Uncontended pair (acquire + release), 9 interleaved rounds of 20,000",
  ["", "per pair", "ratio"],
  compare(await pairs()),
);
for (const [what, tasks, names] of [
  ["64 in flight, each on its own name", 64, 64],
  ["Hot lock: 16 tasks", 16, 1],
]) {
  table(`${what}, 9 interleaved rounds of 40,000 holds`, ["", "per hold", "ratio"], compare(await crowd(tasks, names)));
}

const sizes = [10, 1000, 100_000];
const queues = {};
for (const size of sizes) queues[size] = await queueOf(size);
const figures = await interleave(Object.fromEntries(sizes.map((size) => [size, queues[size].measure])), 9);
table(
  "Hand-over with waiters in the queue, 9 interleaved rounds of 2,000",
  ["waiters", "per hand-over", "ratio to 10", "heap per waiter"],
  sizes.map((size) => [
    size.toLocaleString("en"),
    micros(median(figures[size])),
    `${ratio(figures[size], figures[10]).toFixed(2)} ×`,
    size < 1000 ? "-" : `${Math.round(queues[size].heapPerWaiter)} B`,
  ]),
);
for (const size of sizes) await queues[size].close();
table(
  "100,000 held names, all renewed",
  ["", "heap per hold"],
  [["holdfast", `${Math.round(await heldNames(100_000))} B`]],
);
