// PostgreSQL and MariaDB: what a lock costs beside the bare statements it could be made of, on servers of their own.
// Durable commits everywhere: the same for all candidates.

import { connect } from "../dist/index.js";
import { interleave, median, ratio, table } from "./lib/measure.mjs";
import { STORES } from "./stores/index.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 9);
const PAIRS = 100;
const HANDOVERS = 40;
/** Code that was never run is slow for everybody: so often each thing is done before it is measured. */
const WARM_UP = 1000;
const nanos = () => Number(process.hrtime.bigint());
const micros = (value) => `${Math.round(value / 1000)} µs`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function timed(count, work) {
  const start = nanos();
  for (let n = 0; n < count; n += 1) await work(n);
  return (nanos() - start) / count;
}

/** In turn, one of each: whatever slows the disk down for a moment slows all of them, and the median leaves it out. */
async function pairs({ contestants }, { at, roundTrip }) {
  const candidates = { [roundTrip.name]: roundTrip.run };
  const opened = [];
  for (const [name, { open }] of Object.entries(contestants)) {
    const contestant = await open(at);
    opened.push(contestant);
    candidates[name] = async () => (await contestant.take("pair"))();
  }
  for (let n = 0; n < WARM_UP; n += 1) for (const work of Object.values(candidates)) await work();
  const taken = Object.fromEntries(Object.keys(candidates).map((name) => [name, []]));
  for (let n = 0; n < ROUNDS * PAIRS; n += 1) {
    for (const [name, work] of Object.entries(candidates)) taken[name].push(await timed(1, work));
  }
  for (const contestant of opened) await contestant.close();
  return taken;
}

/** One hand-over after the other: from the release call to the waiter's acquisition, and a SELECT 1 after the same pause. */
async function handOvers({ locks, other }, { run: select }) {
  const taken = { handOver: [], select: [], tight: [] };
  for (let n = 0; n < WARM_UP; n += 1) {
    const hold = await locks.mutex("hand-over").acquire();
    const waiting = other.mutex("hand-over").acquire();
    await Promise.all([hold.release(), waiting.then((next) => next.release()), select()]);
  }
  for (let n = 0; n < ROUNDS * HANDOVERS; n += 1) {
    const hold = await locks.mutex("hand-over").acquire();
    const queued = new Promise((resolve) => other.on("queued", resolve));
    const waiting = other.mutex("hand-over").acquire();
    await queued;
    await pause(3);
    let start = nanos();
    const releasing = hold.release();
    const next = await waiting;
    taken.handOver.push(nanos() - start);
    await releasing;
    await next.release();
    await pause(3);
    start = nanos();
    await select();
    taken.select.push(nanos() - start);
    start = nanos();
    await select();
    taken.tight.push(nanos() - start);
  }
  return taken;
}

/** A queue that stays `waiters` long: whoever was served queues again. */
async function queueOf({ locks, other }, waiters) {
  const mutex = other.mutex(`queue of ${waiters}`);
  let hold = await locks.mutex(`queue of ${waiters}`).acquire();
  let served = () => {};
  let left = waiters;
  const queue = () =>
    mutex.acquire({ leaseMs: 60_000 }).then(
      (next) => served(next),
      () => {}, // closed at the end
    );
  const allQueued = new Promise((resolve) => other.on("queued", () => (left -= 1) === 0 && resolve()));
  for (let n = 0; n < waiters; n += 1) void queue();
  await allQueued;
  return () =>
    timed(HANDOVERS, async () => {
      const next = new Promise((resolve) => (served = resolve));
      await hold.release();
      hold = await next;
      void queue();
    });
}

const wanted = process.argv.slice(2);
for (const [name, store] of Object.entries({ postgres: STORES.postgres, mariadb: STORES.mysql })) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const server = await store.start({ onDisk: true });
  const clients = { locks: await connect(server.at.url), other: await connect(server.at.url) };
  try {
    const figures = await pairs(store, server);
    table(
      `${name}: uncontended pair (acquire + release), ${ROUNDS * PAIRS} times in turn`,
      ["", "p50", "ratio to the bare table"],
      Object.entries(figures).map(([candidate, values]) => [
        candidate,
        micros(median(values)),
        `${(median(values) / median(figures["bare table"])).toFixed(2)} ×`,
      ]),
    );
    const { handOver, select, tight } = await handOvers(clients, server.roundTrip);
    const by = (base) => `${(median(handOver) / median(base)).toFixed(2)} ×`;
    table(
      `${name}: hand-over to a waiter of another client, ${handOver.length} times`,
      ["", "p50", "hand-over is"],
      [
        ["hand-over", micros(median(handOver)), ""],
        ["SELECT 1 after the same pause", micros(median(select)), by(select)],
        ["SELECT 1 right after another", micros(median(tight)), by(tight)],
      ],
    );
    const sizes = [10, 1000];
    const queues = {};
    for (const size of sizes) queues[size] = await queueOf(clients, size);
    const times = await interleave(Object.fromEntries(sizes.map((size) => [size, queues[size]])), ROUNDS);
    table(
      `${name}: release, hand over and queue again with waiters in the queue, ${ROUNDS} interleaved rounds of ${HANDOVERS}`,
      ["waiters", "per hand-over", "ratio to 10"],
      sizes.map((size) => [size, micros(median(times[size])), `${ratio(times[size], times[10]).toFixed(2)} ×`]),
    );
  } finally {
    await Promise.all([clients.locks.close(), clients.other.close()]);
    await server.stop();
  }
}
