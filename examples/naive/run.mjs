// npm run example -- naive: every well-known way to get a Redis lock wrong, played on real servers until it fails, and the
// same story with Holdfast beside it. Exit code 1 when a wrong lock held or a right one failed.
import { parseArgs } from "node:util";
import { paint, progress, table } from "../lib/screen.mjs";
import { CASES } from "./cases.mjs";
import { clear, startRedis } from "./stage.mjs";

try {
  parseArgs({ options: {} });
} catch (error) {
  console.error(`${error.message}\n\nusage: npm run example -- naive      (it starts Redis servers of its own)`);
  process.exit(2);
}

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(2));
const { url, port } = await startRedis();
const rows = [];
for (const [n, played] of CASES.entries()) {
  const { lock, story } = played;
  progress(`${n + 1} of ${CASES.length}: ${lock}, ${story} ...`);
  // Side by side: most of it is waiting for leases to end.
  const [naive, holdfast] = await Promise.all([
    played.wrong({ url, port, name: `naive ${n}` }),
    played.right({ url, port, name: `right ${n}` }),
  ]);
  rows.push({ lock, story, naive, holdfast });
  clear();
}
progress("");

const cells = rows.map(({ lock, story, naive, holdfast }) => [lock, story, naive.seen, holdfast.seen]);
const [head, ...lines] = table([["the lock", "and then", "it", "Holdfast"], ...cells], "left").split("\n");
console.log(paint("bold", head));
for (const line of lines) console.log(line);
const wrong = rows.filter(({ naive, holdfast }) => naive.fine || !holdfast.fine);
for (const { lock, story, naive, holdfast } of wrong)
  console.error(`not as expected: ${lock}, ${story}: ${naive.seen} / ${holdfast.seen}`);
process.exit(wrong.length > 0 ? 1 : 0); // and with this process go the servers and all others
