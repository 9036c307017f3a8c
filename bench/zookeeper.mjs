// ZooKeeper: what a lock costs beside Kazoo's and Curator's on the same server, in the same run, round by round; how many messages
// a hand-over takes with ten and with a thousand in line; and what waits leave behind.

import { connect } from "../dist/index.js";
import { interleave, median, ratio, table } from "./lib/measure.mjs";
import { arrivingWaiters, inFlight, timedOutWaits } from "./lib/queue-costs.mjs";
import { startCurator, startKazoo, startZooKeeper } from "./lib/zookeeper-server.mjs";
import { wireClient, zookeeper } from "./stores/zookeeper.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 9);
const PAIRS = 100;
const HANDOVERS = 20;
const nanos = () => Number(process.hrtime.bigint());
const millis = (value) => `${(value / 1e6).toFixed(2)} ms`;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const server = await startZooKeeper();
const kazoo = await startKazoo(server.port);
const curator = await startCurator(server.port);
const [locks, other] = [await connect(server.url), await connect(server.url)];
const raw = await wireClient(server.port);

async function timed(count, work) {
  const taken = [];
  for (let n = 0; n < count; n += 1) {
    const start = nanos();
    await work();
    taken.push(nanos() - start);
  }
  return median(taken);
}

const mutex = locks.mutex("pair");
const kept = { exists: [] };
const pairs = await interleave(
  {
    "holdfast exists": () => timed(PAIRS, () => raw.exists("/bench")),
    holdfast: () => timed(PAIRS, async () => (await mutex.acquire()).release()),
    kazoo: async () => {
      const { pair, exists } = await kazoo.ask("pairs", PAIRS);
      kept.exists.push(median(exists));
      return median(pair);
    },
    curator: async () => median(await curator.ask("pairs", PAIRS)),
  },
  ROUNDS,
);
const kazooExists = kept.exists.slice(1);
table(
  `uncontended pair (acquire + release), ${ROUNDS} interleaved rounds of ${PAIRS}, medians`,
  ["", "pair", "exists", "pair in round trips of exists", "pair beside Kazoo's"],
  [
    ["holdfast", pairs.holdfast, pairs["holdfast exists"]],
    ["Kazoo", pairs.kazoo, kazooExists],
    ["Curator", pairs.curator, null],
  ].map(([name, pair, exists]) => [
    name,
    millis(median(pair)),
    exists ? millis(median(exists)) : "-",
    exists ? ratio(pair, exists).toFixed(2) : "-",
    `${ratio(pair, pairs.kazoo).toFixed(2)} ×`,
  ]),
);

/** From the release call to the waiter's acquisition, in another session. */
async function handOver() {
  const hold = await locks.mutex("hand-over").acquire();
  const queued = new Promise((resolve) => other.on("queued", resolve));
  const waiting = other.mutex("hand-over").acquire();
  await queued;
  await pause(10);
  const start = nanos();
  const releasing = hold.release();
  const next = await waiting;
  const taken = nanos() - start;
  await releasing;
  await next.release();
  return taken;
}

const handOvers = await interleave(
  {
    holdfast: async () => {
      const taken = [];
      for (let n = 0; n < HANDOVERS; n += 1) taken.push(await handOver());
      return median(taken);
    },
    kazoo: async () => median((await kazoo.ask("handOvers", HANDOVERS)).handOver),
    curator: async () => median(await curator.ask("handOvers", HANDOVERS)),
  },
  ROUNDS,
);
table(
  `hand-over to a waiter in another session, ${ROUNDS} interleaved rounds of ${HANDOVERS}, medians`,
  ["", "p50", "beside Kazoo's", "beside Curator's"],
  ["holdfast", "kazoo", "curator"].map((name) => [
    name,
    millis(median(handOvers[name])),
    `${ratio(handOvers[name], handOvers.kazoo).toFixed(2)} ×`,
    `${ratio(handOvers[name], handOvers.curator).toFixed(2)} ×`,
  ]),
);
const { holdfast, "one node": oneNode } = zookeeper.contestants;
await inFlight({ url: server.url, port: server.port }, { holdfast, "one node": oneNode }, ROUNDS);
await timedOutWaits(server);
await arrivingWaiters(server);

/** All of them wait behind the first; then each takes its turn. Messages to and from the server for each of them. */
async function messagesPerTurn(many, first, lock) {
  const client = await connect(server.url, { sessionTimeoutMs: 40_000, leaseMs: 60_000 });
  const holds = await first(client);
  let left = many;
  const allWait = new Promise((resolve) => client.on("queued", () => (left -= 1) === 0 && resolve()));
  const turns = Array.from({ length: many }, async () => (await lock(client).acquire()).release());
  await allWait;
  // Until what they watch is watched.
  await pause(500);
  const before = await server.messages();
  await Promise.all(holds.map((hold) => hold.release()));
  await Promise.all(turns);
  const taken = ((await server.messages()) - before) / many;
  await client.close();
  return taken;
}

const lines = {
  mutex: [async (client) => [await client.mutex("m").acquire()], (client) => client.mutex("m")],
  "readers behind a writer": [
    async (client) => [await client.readWrite("rw").write.acquire()],
    (client) => client.readWrite("rw").read,
  ],
  "semaphore of 10": [
    (client) => Promise.all(Array.from({ length: 10 }, () => client.semaphore("s", 10).acquire())),
    (client) => client.semaphore("s", 10),
  ],
};
const rows = [];
for (const [name, [first, lock]] of Object.entries(lines)) {
  const [ten, thousand] = [await messagesPerTurn(10, first, lock), await messagesPerTurn(1000, first, lock)];
  rows.push([name, ten.toFixed(1), thousand.toFixed(1), `${(thousand / ten).toFixed(2)} ×`]);
}
table("messages to and from the server per hand-over, release included", ["", "10 in line", "1,000 in line", ""], rows);

await Promise.all([locks.close(), other.close(), raw.close()]);
kazoo.stop();
curator.stop();
server.stop();
