// What @Lock of holdfast/nest costs a call, beside `using` by hand and beside the bare method, on memory, in one interleaved run.
//
//   npm run bench -- frameworks [rounds]
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { prepare } from "../tools/nest/prepare.mjs";
import { interleave, median, ratio, table } from "./lib/measure.mjs";

const [rounds = 15] = process.argv.slice(2).map(Number);
const CALLS = 20_000;
const { service, close } = await import(pathToFileURL(join(prepare(12), "calls.js")).href);

/** µs for each call. */
const calls = (method) => async () => {
  const start = performance.now();
  for (let n = 0; n < CALLS; n += 1) await service[method](n % 100);
  return ((performance.now() - start) / CALLS) * 1000;
};

const figures = await interleave(
  {
    "the bare method": calls("bare"),
    "mutex.using() by hand": calls("using"),
    "@Lock": calls("decorated"),
    "@Lock and currentHold()": calls("asking"),
  },
  rounds,
);
const byHand = figures["mutex.using() by hand"];
table(
  `a call on the memory engine, Nest 12, ${rounds} interleaved rounds of ${CALLS} calls, medians`,
  ["called", "call", "to using()", "beyond the bare method"],
  Object.entries(figures).map(([name, all]) => [
    name,
    `${median(all).toFixed(2)} µs`,
    `${ratio(all, byHand).toFixed(2)} ×`,
    `${(median(all) - median(figures["the bare method"])).toFixed(2)} µs`,
  ]),
);
await close();
