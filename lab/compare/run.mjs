// Measures every contestant on every store (`bench/stores`, `bench/measures`), keeps the figures in lab/results/comparison.json
// and makes docs/comparison.md of them. Run by `lab/compare.mjs`, which sees to it that there is something to measure.
import { existsSync, readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { join, relative, resolve } from "node:path";
import { parseArgs } from "node:util";
import { chance, shuffled } from "../../bench/lib/rounds.mjs";
import { MEASURES, SIZES } from "../../bench/measures/index.mjs";
import { STORES } from "../../bench/stores/index.mjs";
import { connect } from "../../dist/index.js";
import { progress } from "../lib/progress.js";
import { circumstances, ROOT, write, writeJson } from "../lib/results.js";
import { pagesOf } from "./page.js";

const USAGE = `npm run compare -- [options]

  --only a,b     only these engines, measures or contestants; what else the results say stays as it is
                 engines: ${Object.keys(STORES).join(", ")}
                 measures: ${Object.keys(MEASURES).join(", ")}
  --repeat n     interleaved rounds of each measure; 5 (what takes long: at most 3)
  --seed n       decides the order of each round, the rests and the moments of the kills
  --json         print the results
  --out folder   write there instead of into the project
  --quick        a moment of everything: shows that it works, measures nothing
  --page         measure nothing, make the page of the results that there are`;

const { options, wanted } = readSettings();
const out = (path) => (options.out ? relative(ROOT, resolve(options.out, path)) : path);
const RESULTS = out("lab/results/comparison.json");
const known = () => (existsSync(join(ROOT, RESULTS)) ? JSON.parse(readFileSync(join(ROOT, RESULTS), "utf8")) : null);

const results = options.page ? known() : merged(await measureAll());
if (!options.page) writeJson(RESULTS, results);
for (const [path, text] of Object.entries(pagesOf(results))) write(out(path), text);
if (options.json) console.log(JSON.stringify(results, null, 1));
const broken = Object.entries(results.engines).flatMap(([engine, { contestants }]) =>
  Object.entries(contestants).flatMap(([name, figures]) =>
    Object.entries(figures).flatMap(([measure, { failed }]) =>
      failed ? [`${engine}, ${name}, ${measure}: ${failed}`] : [],
    ),
  ),
);
if (broken.length > 0) console.error(`broke down:\n${broken.join("\n")}`);
process.exit(broken.length > 0 ? 1 : 0);

function readSettings() {
  try {
    return settings();
  } catch (error) {
    console.error(`${error.message}\n\n${USAGE}`);
    return process.exit(2);
  }
}

function settings() {
  const string = { type: "string" };
  const flag = { type: "boolean", default: false };
  const { values } = parseArgs({
    options: {
      only: { ...string, default: "" },
      repeat: { ...string, default: "5" },
      seed: { ...string, default: "1" },
      out: string,
      json: flag,
      quick: flag,
      page: flag,
    },
  });
  for (const name of ["repeat", "seed"]) {
    if (!/^[1-9]\d{0,8}$/.test(values[name])) throw new Error(`--${name} takes a whole number above 0`);
  }
  return { options: values, wanted: chosen(values.only.split(",").filter(Boolean)) };
}

/** A word names an engine, a measure or a contestant; of a kind that is not named, all are meant. */
function chosen(words) {
  const contestants = Object.values(STORES).flatMap((store) => Object.keys(store.contestants));
  const kinds = {
    engines: Object.keys(STORES),
    measures: Object.keys(MEASURES),
    contestants: [...new Set(contestants)],
  };
  const unknown = words.filter((word) => !Object.values(kinds).flat().includes(word));
  if (unknown.length > 0) throw new Error(`--only: there is no ${unknown.join(", ")}`);
  const of = (kind) => {
    const named = kinds[kind].filter((word) => words.includes(word));
    return named.length > 0 ? named : kinds[kind];
  };
  return { engines: of("engines"), measures: of("measures"), contestants: of("contestants") };
}

async function measureAll() {
  // Each server ends with this process, also when it is told to go.
  process.setMaxListeners(100);
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
  const begun = Date.now();
  const random = chance(Number(options.seed));
  const sizes = SIZES[options.quick ? "quick" : "full"];
  const order = (names) => shuffled(names, random);
  const context = { rounds: Number(options.repeat), random, order, sizes };
  const line = ["npm run compare", ...process.argv.slice(2)].join(" ").replace("compare --", "compare -- --");
  const about = circumstances(line);
  const { date, command, commit } = about;
  const run = { date, command, commit, load: loadavg()[0], seed: Number(options.seed), repeat: context.rounds };
  const servers = {};
  const engines = {};
  for (const store of wanted.engines) {
    progress(`starting ${store}`);
    servers[store] = await STORES[store].start();
    const locks = await connect(servers[store].at.url);
    const names = Object.keys(STORES[store].contestants).filter((name) => wanted.contestants.includes(name));
    const contestants = Object.fromEntries(names.map((name) => [name, {}]));
    engines[store] = { guarantees: locks.guarantees, contestants };
    await locks.close();
  }
  const entrants = wanted.engines.flatMap((store) =>
    Object.keys(engines[store].contestants).map((contestant) => ({
      ...STORES[store].contestants[contestant],
      store,
      contestant,
      key: `${store}/${contestant}`,
      server: servers[store],
    })),
  );
  for (const measure of wanted.measures) {
    for (const [key, figure] of Object.entries(await MEASURES[measure](entrants, context))) {
      const [store, contestant] = key.split(/\/(.*)/);
      if (contestant === "") engines[store].roundTrip = { name: servers[store].roundTrip.name, ...figure };
      else engines[store].contestants[contestant][measure] = figure;
    }
  }
  await Promise.all(Object.values(servers).map((server) => server.stop()));
  const peers = JSON.parse(readFileSync(join(ROOT, "bench/package.json"), "utf8")).dependencies;
  const runs = [{ ...run, minutes: (Date.now() - begun) / 60_000 }];
  return { circumstances: about, peers, sizes, runs, engines };
}

/** A part takes the place of the same part in what is known by now, also by another run that ended meanwhile. */
function merged(found) {
  const before = options.only === "" ? null : known();
  if (before === null) return found;
  const engines = {};
  for (const store of Object.keys(STORES)) {
    const [old, now] = [before.engines[store], found.engines[store]];
    if (!old && !now) continue;
    const contestants = {};
    for (const name of Object.keys(STORES[store].contestants)) {
      const both = { ...old?.contestants[name], ...now?.contestants[name] };
      if (old?.contestants[name] || now?.contestants[name]) contestants[name] = both;
    }
    engines[store] = { ...old, ...now, contestants };
  }
  return { ...found, runs: [...before.runs, ...found.runs], engines };
}
