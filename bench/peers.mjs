// One store's engine beside its peers, in one interleaved run: a pair, 64 in flight, a hand-over, the hot lock. The same measures
// as `npm run compare`, printed with the ratio to each peer; nothing is written.
//
//   npm run bench -- peers [store] [measures, by comma; pair,flight,handOver,hot] [rounds]
import { loadavg } from "node:os";
import { median, progress, table } from "./lib/measure.mjs";
import { chance, shuffled } from "./lib/rounds.mjs";
import { MEASURES, SIZES } from "./measures/index.mjs";
import { STORES } from "./stores/index.mjs";

/** What counts of each measure, and how it reads. */
const FIGURES = {
  pair: { of: ({ ms }) => ms, rounds: true, shown: (ms) => `${Math.round(ms * 1000)} µs` },
  flight: { of: ({ perSecond }) => perSecond, rounds: true, shown: (value) => `${Math.round(value)}/s` },
  handOver: { of: ({ ms }) => ms, rounds: true, shown: (ms) => `${ms.toFixed(2)} ms` },
  hot: { of: ({ perSecond }) => perSecond, rounds: false, shown: (value) => `${Math.round(value)}/s` },
};

const [name = "postgres", measures = Object.keys(FIGURES).join(), rounds = "9"] = process.argv.slice(2);
const wanted = measures.split(",");
if (!(name in STORES) || wanted.some((measure) => !(measure in FIGURES))) {
  const [stores, known] = [STORES, FIGURES].map((all) => Object.keys(all).join(" | "));
  console.error(`usage: npm run bench -- peers [${stores}] [${known}, by comma] [rounds]`);
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const store = STORES[name];
const server = await store.start();
const entrants = Object.entries(store.contestants).map(([contestant, one]) => ({
  ...one,
  store: name,
  contestant,
  key: `${name}/${contestant}`,
  server,
}));
const random = chance(1);
const context = { rounds: Number(rounds), random, order: (names) => shuffled(names, random), sizes: SIZES.full };
for (const measure of wanted) {
  const load = loadavg()[0].toFixed(1);
  const figures = await MEASURES[measure](entrants, context);
  progress("");
  const { of, rounds: each, shown } = FIGURES[measure];
  const ours = figures[`${name}/holdfast`];
  const times = (figure) => {
    // Round by round where the measure keeps them: what slows the machine down slows all of one round.
    const ratio = each ? median(figure.rounds.map((value, at) => ours.rounds[at] / value)) : of(ours) / of(figure);
    return `${ratio.toFixed(2)} ×`;
  };
  table(
    `${name}, ${measure}: medians of ${rounds} interleaved rounds, load ${load}`,
    ["", "median", "holdfast is", ...(measure === "hot" ? ["Jain", "p99 ms"] : [])],
    Object.entries(figures).flatMap(([key, figure]) =>
      of(figure) === undefined
        ? []
        : [
            [
              key.slice(name.length + 1) || (server.roundTrip?.name ?? ""),
              shown(of(figure)),
              figure === ours ? "" : times(figure),
              ...(measure === "hot" ? [figure.jain.toFixed(3), figure.p99.toFixed(1)] : []),
            ],
          ],
    ),
  );
}
await server.stop();
process.exit(0);
