// npm start: 100 items, 200 buyers at the same moment, 4 server processes, five ways to sell. Exit code 1 when one of
// them did not do what it should.
//
//   npm start -- [--variant "no lock"] [--runs 20] [--url postgres://… | mysql://… | mariadb://…]
//
// Without a URL the shop is a file and the locks are embedded; with one, both are in that database.
import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { chart } from "./chart.mjs";

const [ITEMS, BUYERS, SERVERS] = [100, 200, 4];
const { values: options } = parseArgs({
  options: { variant: { type: "string" }, runs: { type: "string" }, url: { type: "string" } },
});
const { url } = options;
const { countShop, createShop, VARIANTS } = await (url === undefined
  ? import("./shop.mjs")
  : import("./database-shop.mjs"));
const variants = options.variant === undefined ? Object.keys(VARIANTS) : [options.variant];
const runs = Number(options.runs ?? 1);
const known = variants.every((variant) => Object.hasOwn(VARIANTS, variant));
const reachable = url === undefined || /^(?:postgres(?:ql)?|mysql|mariadb):/.test(url);
if (!known || !reachable || !Number.isSafeInteger(runs) || runs < 1) {
  console.error(
    `usage: npm start -- [--variant ${Object.keys(VARIANTS)
      .map((name) => `"${name}"`)
      .join(" | ")}] [--runs n] [--url postgres://… | mysql://… | mariadb://…]`,
  );
  process.exit(2);
}

const progress = (text) => process.stderr.isTTY && process.stderr.write(`\r\x1b[K${text}`);

/** A server process that answers one command at a time. */
class Server {
  constructor(folder) {
    this.process = fork(join(import.meta.dirname, "server.mjs"), [folder, ...(url === undefined ? [] : [url])]);
    this.process.on("exit", (code) => code !== 0 && fail(`a server ended with code ${code}`));
  }

  async answer() {
    const [{ answer, error }] = await once(this.process, "message");
    if (error !== undefined) fail(error);
    return answer;
  }

  ask(command, details = {}) {
    const answer = this.answer();
    this.process.send({ command, ...details });
    return answer;
  }
}

function fail(problem) {
  progress("");
  console.error(problem);
  process.exit(1);
}

async function sell(servers, variant, shop) {
  await createShop(shop, ITEMS);
  await Promise.all(servers.map((server) => server.ask("prepare", { variant, shop })));
  const at = Date.now() + 60;
  const buyers = BUYERS / SERVERS;
  const told = await Promise.all(servers.map((server, who) => server.ask("sell", { at, buyers, who })));
  const seconds = (Date.now() - at) / 1000;
  const waits = told.flat().map(({ waitMs }) => waitMs);
  return { name: variant, ...(await countShop(shop)), seconds, waits: waits.toSorted((a, b) => a - b) };
}

const percentile = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];

function table(rows) {
  const head = ["", "sold", "left", "oversold", "seconds", "p50 wait", "p99 wait"];
  const body = rows.map(({ name, sold, left, seconds, waits }) => [
    name,
    sold,
    left,
    Math.max(0, sold - ITEMS),
    seconds.toFixed(2),
    `${percentile(waits, 0.5).toFixed(0)} ms`,
    `${percentile(waits, 0.99).toFixed(0)} ms`,
  ]);
  const cells = [head, ...body].map((row) => row.map(String));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => row[column].length)));
  return cells
    .map((row) => row.map((cell, n) => (n === 0 ? cell.padEnd(widths[n]) : cell.padStart(widths[n]))).join("  "))
    .join("\n");
}

/** What each way must do: without a lock more is sold than there is, with any of the others exactly what there is. */
function isAsExpected({ name, sold, left }) {
  return name === "no lock" ? sold > ITEMS : sold === ITEMS && left === 0;
}

const folder = mkdtempSync(join(tmpdir(), "flash-sale-"));
try {
  progress("starting the servers ...");
  const servers = Array.from({ length: SERVERS }, () => new Server(folder));
  await Promise.all(servers.map((server) => server.answer()));
  const rows = [];
  for (let run = 1; run <= runs; run += 1) {
    for (const variant of variants) {
      progress(
        `selling ${ITEMS} items to ${BUYERS} buyers: ${variant}${runs > 1 ? `, run ${run} of ${runs}` : ""} ...`,
      );
      rows.push(await sell(servers, variant, url ?? join(folder, `shop-${rows.length}.db`)));
    }
  }
  for (const server of servers) server.process.send({ command: "close" });
  await Promise.all(servers.map((server) => once(server.process, "exit")));
  progress("");
  console.log(
    `${ITEMS} items, ${BUYERS} buyers at the same moment, ${SERVERS} processes; a purchase takes 4 ms of work\n`,
  );
  console.log(table(rows));
  const out = join(import.meta.dirname, "out");
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, "flash-sale.svg"), chart(rows, ITEMS));
  console.log(`\nchart: ${relative(process.cwd(), join(out, "flash-sale.svg"))}`);
  const wrong = rows.filter((row) => !isAsExpected(row));
  for (const { name, sold, left } of wrong) console.error(`not as expected: "${name}" sold ${sold} and left ${left}`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
