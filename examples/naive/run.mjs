// npm run example -- naive: every well-known way to get a Redis lock wrong, run on real servers until it fails, and the
// same scenario with Holdfast beside it. Exit code 1 when a wrong lock held or a right one failed.
import { parseArgs } from "node:util";
import { paint, progress, table } from "../lib/screen.mjs";
import { CASES } from "./cases.mjs";
import { Environment, startRedis } from "./environment.mjs";

try {
  parseArgs({ options: {} });
} catch (error) {
  console.error(`${error.message}\n\nusage: npm run example -- naive      (it starts Redis servers of its own)`);
  process.exit(2);
}

/** Cases that run at the same time. */
const AT_ONCE = 4;

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(2));
const { url, port } = await startRedis();
let over = 0;

/** The wrong lock and the right one side by side: most of it is waiting for leases to end. */
async function runCase({ problem, lock, scenario, ...ways }, n) {
  const environment = new Environment();
  const [naive, holdfast] = await Promise.all(
    ["wrong", "right"].map((which) => ways[which](environment, { url, port, name: `${which} ${n}` })),
  );
  environment.clear();
  progress(`${(over += 1)} of ${CASES.length} wrong locks have failed ...`);
  return { problem, lock, scenario, naive, holdfast };
}

progress("starting servers and processes ...");
const rows = [];
try {
  for (let n = 0; n < CASES.length; n += AT_ONCE)
    rows.push(...(await Promise.all(CASES.slice(n, n + AT_ONCE).map((one, k) => runCase(one, n + k)))));
} catch (error) {
  progress("");
  console.error(error.stack);
  process.exit(2);
}
progress("");

const cells = rows.map(({ problem, lock, scenario, naive, holdfast }) => [
  String(problem),
  lock,
  scenario,
  naive.seen,
  holdfast.seen,
]);
const [head, ...lines] = table([["", "the lock", "and then", "it", "Holdfast"], ...cells], "left").split("\n");
console.log(paint("bold", head));
for (const line of lines) console.log(line);
const wrong = rows.filter(({ naive, holdfast }) => naive.fine || !holdfast.fine);
for (const { lock, scenario, naive, holdfast } of wrong)
  console.error(`not as expected: ${lock}, ${scenario}: ${naive.seen} / ${holdfast.seen}`);
process.exit(wrong.length > 0 ? 1 : 0); // and with this process go the servers and all others
