// How an engine grows: held names, idle names, clients. Prints the growth curves, and fails when a hold was lost.
//
//   npm run bench -- scale [single | cluster | sqlite | postgres | mysql] [held sizes, by comma] [idle sizes, by comma] [--write]
//   npm run bench -- scale --page
//
// `single` and `cluster` are Redis. On databases `--pairs` says how many pairs of churn follow. `--write` keeps their figures in lab/results/scale.json, beside each other, and writes
// docs/scale.md from them; `--page` only writes the page.
import { parseArgs } from "node:util";
import { progress } from "./lib/measure.mjs";
import { scaleRedis, writePage } from "./scale/redis.mjs";
import { scaleSql } from "./scale/sql.mjs";
import { scaleSqlite } from "./scale/sqlite.mjs";

/** An hour of a hundred pairs a second. */
const CHURN_PAIRS = 360_000;
const options = { write: { type: "boolean" }, page: { type: "boolean" }, pairs: { type: "string" } };
const { values, positionals } = parseArgs({ options, allowPositionals: true });
if (values.page) {
  writePage();
  process.exit(0);
}
/** Each answers whether nothing was lost. */
const SCALES = {
  single: (sizes) => scaleRedis("single", sizes),
  cluster: (sizes) => scaleRedis("cluster", sizes),
  sqlite: scaleSqlite,
  postgres: (sizes) => scaleSql("postgres", sizes),
  mysql: (sizes) => scaleSql("mysql", sizes),
};
const [kind = "single", held = "1000,10000,100000", idle = "10000,100000,1000000", ...others] = positionals;
const [heldSizes, idleSizes] = [held, idle].map((list) => list.split(",").map(Number));
const pairs = Number(values.pairs ?? CHURN_PAIRS);
const areSizes = [...heldSizes, ...idleSizes, pairs].every(
  (size) => Number.isSafeInteger(size) && size > 0 && size < 1e7,
);
if (!Object.hasOwn(SCALES, kind) || !areSizes || others.length > 0) {
  console.error(
    `usage: npm run bench -- scale [${Object.keys(SCALES).join(" | ")}] [held sizes] [idle sizes] [--write]`,
  );
  console.error("       npm run bench -- scale --page");
  process.exit(2);
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));

const begun = performance.now();
/** What takes long says where it is, also in a log. */
const step = (text) => {
  if (process.stderr.isTTY) progress(text);
  else console.error(`${((performance.now() - begun) / 1000).toFixed(0).padStart(5)} s  ${text}`);
};
const right = await SCALES[kind]({ heldSizes, idleSizes, pairs, step, write: values.write === true });
if (!right) console.error("\nA hold or a name was lost, or a row was left over.");
process.exit(right ? 0 : 1);
