// A lock that many tasks fight for, in several shapes, cold and warm apart: how fast it goes round, how fairly, at what price.
//
//   npm run bench -- hot [store] [rounds] [contestants, by comma]
import { median, progress, table } from "./lib/measure.mjs";
import { hotRound } from "./lib/processes.mjs";
import { STORES } from "./stores/index.mjs";

const [store = "redis", rounds = 5, only = ""] = process.argv.slice(2);
if (!(store in STORES)) {
  console.error(`usage: npm run bench -- hot [${Object.keys(STORES).join(" | ")}] [rounds] [contestants, by comma]`);
  process.exit(2);
}
const { contestants, start, processes: most = 64 } = STORES[store];
const all = Object.keys(contestants).filter((name) => !contestants[name].not?.hot);
const names = only === "" ? ["holdfast bursts", ...all] : only.split(",");

/** Processes × tasks in each. */
const SHAPES = {
  "1 × 16": { processes: 1, tasks: 16 },
  "4 × 4": { processes: 4, tasks: 4 },
  "4 × 16": { processes: 4, tasks: 16 },
  "16 × 1": { processes: 16, tasks: 1 },
  "4 × 4, each staying away for 10 ms on average": { processes: 4, tasks: 4, restMs: 10 },
};

const server = await start();
for (const [title, shape] of Object.entries(SHAPES)) {
  if (shape.processes > most) continue;
  const seen = Object.fromEntries(names.map((name) => [name, []]));
  for (let round = 1; round <= Number(rounds); round += 1) {
    // In turn, and from the other end each time: what slows the machine down slows all of them.
    for (const name of round % 2 ? names : names.toReversed()) {
      progress(`${title}, round ${round} of ${rounds}: ${name}`);
      seen[name].push(await hotRound(store, name, server.at, { ...shape, forMs: 4000, warmMs: 300 }));
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
