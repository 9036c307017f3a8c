// Another checkout of this project beside this one, both built: pairs, many in flight, hand-over to another client, and one lock that the tasks of
// one client fight for. Interleaved, each tree on a server of its own, because layouts differ.
//
//   npm run bench -- trees <folder of the other checkout> [stores, by comma] [rounds]
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { median, ratio, table } from "./lib/measure.mjs";
import { chance, inRounds, shuffled } from "./lib/rounds.mjs";
import { SIZES } from "./measures/index.mjs";
import { flight, handOver, pair } from "./measures/speed.mjs";
import { contestantOf } from "./stores/holdfast.mjs";
import { STORES } from "./stores/index.mjs";

const [folder, only = "memory,sqlite,redis,postgres,mysql,etcd,zookeeper", rounds = "9"] = process.argv.slice(2);
const known = only.split(",").every((store) => store in STORES);
if (folder === undefined || !known || !existsSync(join(folder, "dist/index.js"))) {
  console.error(
    `usage: npm run bench -- trees <folder of another checkout, built> [${Object.keys(STORES).join(",")}] [rounds]`,
  );
  process.exit(2);
}

const TREES = { other: resolve(folder), this: resolve(import.meta.dirname, "..") };

/** Sixteen tasks of one client, one lock. */
async function crowd(entrants, context) {
  const candidates = {};
  const opened = [];
  for (const { key, open, server } of entrants) {
    const contestant = await open(server.at);
    opened.push(contestant);
    candidates[key] = async () => {
      let count = 0;
      const start = performance.now();
      const end = start + 2 * context.sizes.sliceMs;
      const task = async () => {
        for (; performance.now() < end; count += 1) await (await contestant.take("crowd"))();
      };
      await Promise.all(Array.from({ length: 16 }, task));
      return (count * 1000) / (performance.now() - start);
    };
  }
  const figures = await inRounds(candidates, context, (all) => ({ perSecond: median(all), rounds: all }));
  await Promise.all(opened.map((contestant) => contestant.close()));
  return figures;
}

const random = chance(1);
const context = {
  rounds: Number(rounds),
  warmUps: 2,
  random,
  order: (names) => shuffled(names, random),
  sizes: SIZES.full,
};
const rows = [];
for (const store of only.split(",")) {
  const entrants = [];
  for (const [tree, path] of Object.entries(TREES)) {
    const { connect } = await import(pathToFileURL(join(path, "dist/index.js")).href);
    const server = await STORES[store].start();
    // One memory for each: copies of the library in one process share those of one name.
    if (store === "memory") server.at.url += `-${tree}`;
    entrants.push({ key: tree, store, ...contestantOf(connect), server });
  }
  // Without the cheapest question to the server: it is not what is compared.
  const asked = entrants.map(({ server, ...more }) => ({ ...more, server: { at: server.at } }));
  const rate = (perSecond) => `${Math.round(perSecond)} /s`;
  const measures = [
    { title: "pair", measure: pair, text: (ms) => `${(ms * 1000).toFixed(1)} µs` },
    { title: "64 in flight", measure: flight, text: rate },
    { title: "16 tasks, one lock", measure: crowd, text: rate },
    { title: "hand-over", measure: handOver, text: (ms) => `${ms.toFixed(2)} ms` },
  ];
  for (const { title, measure, text } of measures) {
    const figures = await measure(asked, context);
    const [other, own] = [figures.other.rounds, figures.this.rounds];
    rows.push([`${store}, ${title}`, text(median(other)), text(median(own)), `${ratio(own, other).toFixed(2)} ×`]);
  }
  for (const { server } of entrants) await server.stop();
}
table(
  `${TREES.other} beside this tree, ${rounds} interleaved rounds, medians; times: below 1 is faster, rates: above 1 is`,
  ["", "other", "this", "this to other"],
  rows,
);
process.exit(0);
