// What telemetry costs a pair on the memory engine: nobody subscribed, a bare subscriber to the tracing channels, and OpenTelemetry with its SDK (metrics,
// and spans that are kept nowhere). Then how many series a great many names make.
//
//   npm run bench -- telemetry [rounds] [names]
import { tracingChannel } from "node:diagnostics_channel";
import { memoryEngine } from "../dist/engines/memory/index.js";
import { connect } from "../dist/index.js";
import { instrument } from "../dist/telemetry/index.js";
import { install } from "../tools/telemetry/install.mjs";
import { interleave, median, ratio, table } from "./lib/measure.mjs";

install();
const { dropped, inMemory } = await import("../tools/telemetry/sdk.mjs");
const [rounds = 15, names = 1_000_000] = process.argv.slice(2).map(Number);
const PAIRS = 20_000;

const locks = await connect(memoryEngine());
const mutex = locks.mutex("pair");

/** Pairs while somebody observes; µs for each. */
const pairs = (observe) => async () => {
  const stop = observe();
  const start = process.hrtime.bigint();
  for (let n = 0; n < PAIRS; n += 1) await (await mutex.acquire()).release();
  const took = Number(process.hrtime.bigint() - start) / PAIRS / 1000;
  stop();
  return took;
};

function bareSubscriber() {
  const note = () => {};
  const channels = ["acquire", "hold"].map((verb) => tracingChannel(`holdfast:${verb}`));
  for (const { start, asyncEnd } of channels) for (const phase of [start, asyncEnd]) phase.subscribe(note);
  return () => {
    for (const { start, asyncEnd } of channels) for (const phase of [start, asyncEnd]) phase.unsubscribe(note);
  };
}

const { meter, tracer } = dropped();
const figures = await interleave(
  {
    nobody: pairs(() => () => {}),
    "a bare subscriber": pairs(bareSubscriber),
    "OpenTelemetry, metrics": pairs(() => instrument(locks, { meter, tracer: null })),
    "OpenTelemetry, metrics and spans": pairs(() => instrument(locks, { meter, tracer })),
  },
  rounds,
);
table(
  `a pair on the memory engine, ${rounds} interleaved rounds of ${PAIRS} pairs, medians`,
  ["observed by", "pair", "to nobody", "cost of it"],
  Object.entries(figures).map(([name, all]) => [
    name,
    `${median(all).toFixed(2)} µs`,
    `${ratio(all, figures.nobody).toFixed(2)} ×`,
    `${(median(all) - median(figures.nobody)).toFixed(2)} µs`,
  ]),
);

const kept = inMemory();
const stop = instrument(locks, { meter: kept.meter, tracer: null });
const series = async () => (await kept.metrics()).reduce((sum, { dataPoints }) => sum + dataPoints.length, 0);
const use = async (name) => await (await locks.mutex(name).acquire()).release();
await use("tenant-first:invoice");
const before = await series();
for (let n = 0; n < names; n += 1) await use(`tenant-${n}:invoice`);
console.log(`metric series after 1 name: ${before}; after ${names.toLocaleString("en")} more: ${await series()}`);
stop();
await locks.close();
