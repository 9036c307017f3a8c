// A lock that many tasks fight for, in several shapes, cold and warm apart: how fast it goes round, how fairly, at what price.
//
//   npm run bench -- hot [store] [rounds] [contestants, by comma; all] [shapes, by comma]
import { median, progress, table } from "./lib/measure.mjs";
import { hotRound } from "./lib/processes.mjs";
import { STORES } from "./stores/index.mjs";

/** Processes × tasks in each. */
const SHAPES = {
  "1x16": { processes: 1, tasks: 16 },
  "4x4": { processes: 4, tasks: 4 },
  "4x16": { processes: 4, tasks: 16 },
  "16x1": { processes: 16, tasks: 1 },
  arrivals: { processes: 4, tasks: 4, restMs: 10 },
};

const [store = "redis", rounds = 5, only = "all", shapes = Object.keys(SHAPES).join()] = process.argv.slice(2);
if (!(store in STORES) || shapes.split(",").some((shape) => !(shape in SHAPES))) {
  const [stores, known] = [STORES, SHAPES].map((all) => Object.keys(all).join(" | "));
  console.error(`usage: npm run bench -- hot [${stores}] [rounds] [contestants, by comma; all] [${known}, by comma]`);
  process.exit(2);
}
const { contestants, start, processes: most = 64 } = STORES[store];
const all = Object.keys(contestants).filter((name) => !contestants[name].not?.hot);
/** Their tokens are the store's own: none can be kept for a burst. */
const bursts = ["etcd", "zookeeper", "quorum"].includes(store) ? [] : ["holdfast bursts"];
const names = only === "all" ? [...bursts, ...all] : only.split(",");

const server = await start();
for (const shape of shapes.split(",")) {
  const { processes, tasks, restMs } = SHAPES[shape];
  if (processes > most) continue;
  const stay = restMs === undefined ? "" : `, each staying away for a random time, ${restMs} ms on average`;
  const title = `${processes} × ${tasks}${stay}`;
  const seen = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 1; round <= Number(rounds); round += 1) {
    // In turn, and from the other end each time: what slows the machine down slows all of them.
    for (const name of round % 2 ? names : names.toReversed()) {
      progress(`${title}, round ${round} of ${rounds}: ${name}`);
      seen[name].push(await hotRound(store, name, server.at, { ...SHAPES[shape], forMs: 4000, warmMs: 300 }));
    }
  }
  progress("");
  const of = (name, half, figure) => median(seen[name].map((one) => one[half][figure]));
  const number = (value, digits) => (Number.isNaN(value) ? "-" : value.toFixed(digits));
  const row = (name, half) => [
    `${name}, ${half}`,
    Math.round(of(name, half, "perSecond")).toLocaleString("en"),
    number(of(name, half, "jain"), 3),
    number(of(name, half, "unluckiest"), 2),
    number(of(name, half, "p50"), 2),
    number(of(name, half, "p99"), 2),
    number(of(name, half, "longest"), 1),
    number(of(name, half, "clientUs"), 0),
    number(of(name, half, "serverUs"), 0),
  ];
  table(
    `${store}, hot lock, ${title}: medians of ${rounds} interleaved rounds; cold: the first two seconds, warm: the next two`,
    ["", "holds/s", "Jain", "unluckiest", "p50 ms", "p99 ms", "longest ms", "client µs a hold", "server µs a hold"],
    ["cold", "warm"].flatMap((half) => names.map((name) => row(name, half))),
  );
}
await server.stop();
process.exit(0);
