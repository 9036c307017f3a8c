// npm start: 100 items, 200 buyers at the same moment, 4 server processes, five ways to sell. Exit code 1 when one of
// them did not do what it should.
//
//   npm start -- [--variant "no lock"] [--runs 20] [--url URL]
//   npm start -- --segments 100 [--items 2000] [--buyers 10000] [--url URL]: the stock in segments, beside one lock for all
//
// Without a URL the shop is a file and so are the locks; with that of a database, both are there; with any other, the locks.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { startFleet } from "../lib/fleet.mjs";
import { progress, table } from "../lib/screen.mjs";
import { chart } from "./chart.mjs";

const SERVERS = 4;
const NAMES = ["variant", "runs", "url", "segments", "items", "buyers"];
const usage = (problem) => {
  console.error(`${problem}

usage: npm start -- [--variant name] [--runs n]         five ways to sell 100 items to 200 buyers
       npm start -- --segments 100 [--items 2000] [--buyers 10000] [--runs n]     one lock, and one for each segment
       and with both: [--url URL]   where the locks are, and the shop if it is a database; files unless given`);
  process.exit(2);
};

function options() {
  try {
    return parseArgs({ options: Object.fromEntries(NAMES.map((name) => [name, { type: "string" }])) }).values;
  } catch (error) {
    return usage(error.message);
  }
}
const given = options();
const { url } = given;
if (url?.startsWith("memory:")) usage("memory: is the memory of one process; there are several here");
const database = /^(?:postgres(?:ql)?|mysql|mariadb):/.test(url) ? url : undefined;
const number = (name, usual) => {
  const value = Number(given[name] ?? usual);
  return Number.isSafeInteger(value) && value > 0 ? value : usage(`--${name} must be a whole number above 0`);
};
const { countShop, createShop, VARIANTS } = await (database === undefined
  ? import("./shop.mjs")
  : import("./database-shop.mjs"));
const isSegmented = given.segments !== undefined;
const [items, buyers] = [number("items", isSegmented ? 2000 : 100), number("buyers", isSegmented ? 10_000 : 200)];

/** Each with its name and what the servers have to know. */
function ways() {
  if (isSegmented) {
    return [1, number("segments")].map((segments) => ({
      name: segments === 1 ? "one lock" : `${segments} segments`,
      segments,
    }));
  }
  const names = given.variant === undefined ? Object.keys(VARIANTS) : [given.variant];
  if (!names.every((name) => Object.hasOwn(VARIANTS, name)))
    usage(`--variant is one of: ${Object.keys(VARIANTS).join(", ")}`);
  return names.map((name) => ({ name, variant: name }));
}

async function sell(servers, { name, ...way }, shop) {
  const segments = way.segments ?? 1;
  const part = (n) => Math.floor(items / segments) + (n < items % segments ? 1 : 0);
  await createShop(
    shop,
    Array.from({ length: segments }, (_, n) => part(n)),
  );
  await Promise.all(servers.map((server) => server.ask("prepare", { ...way, shop })));
  const at = Date.now() + 60;
  const told = await Promise.all(servers.map((server) => server.ask("sell", { at, buyers: buyers / SERVERS })));
  const seconds = (Date.now() - at) / 1000;
  const waits = told.flat().map(({ waitMs }) => waitMs);
  return { name, ...(await countShop(shop)), seconds, waits: waits.toSorted((a, b) => a - b) };
}

const percentile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];

function asTable(rows) {
  const head = ["", "sold", "left", "oversold", "seconds", "sold/s", "p50 wait", "p99 wait"];
  const body = rows.map(({ name, sold, left, seconds, waits }) => [
    name,
    sold,
    left,
    Math.max(0, sold - items),
    seconds.toFixed(2),
    (sold / seconds).toFixed(0),
    `${percentile(waits, 0.5).toFixed(0)} ms`,
    `${percentile(waits, 0.99).toFixed(0)} ms`,
  ]);
  return table([head, ...body]);
}

/** What each way must do: without a lock more is sold than there is, with any of the others exactly what there is. */
function isAsExpected({ name, sold, left }) {
  return name === "no lock" ? sold > items : sold === items && left === 0;
}

const [runs, chosen] = [number("runs", 1), ways()];
const folder = mkdtempSync(join(tmpdir(), "flash-sale-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
const servers = await startFleet(SERVERS, join(import.meta.dirname, "member.mjs"), { folder, url, database });
const rows = [];
for (let run = 1; run <= runs; run += 1) {
  for (const way of chosen) {
    progress(`selling ${items} items to ${buyers} buyers: ${way.name}${runs > 1 ? `, run ${run} of ${runs}` : ""} ...`);
    rows.push(await sell(servers, way, database ?? join(folder, `shop-${rows.length}.db`)));
  }
}
await Promise.all(servers.map((server) => server.close()));
progress("");
console.log(
  `${items} items, ${buyers} buyers at the same moment, ${SERVERS} processes; a purchase takes 4 ms of work\n`,
);
console.log(asTable(rows));
if (!isSegmented) {
  const out = join(import.meta.dirname, "out");
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "flash-sale.svg"), chart(rows, items, buyers));
  console.log(`\nchart: ${relative(process.cwd(), join(out, "flash-sale.svg"))}`);
}
const wrong = rows.filter((row) => !isAsExpected(row));
for (const { name, sold, left } of wrong) console.error(`not as expected: "${name}" sold ${sold} and left ${left}`);
process.exitCode = wrong.length > 0 ? 1 : 0;
