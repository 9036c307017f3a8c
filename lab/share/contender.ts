// Counts in a file under a lock: read, sleep, write. Prints how often it did, and how often it saw what a lock forbids.
import { readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { TAKERS } from "./takers.js";

const [program = "", port = "", name = "", file = "", ms = ""] = process.argv.slice(2);
const read = (): number => Number(readFileSync(file, "utf8"));
const take = await TAKERS[program]?.(Number(port), name);
if (take === undefined) throw new Error(`no program "${program}"`);
const until = performance.now() + Number(ms);
let [count, wrong] = [0, 0];
while (performance.now() < until) {
  const release = await take();
  const before = read();
  await sleep(2);
  if (read() !== before) wrong += 1;
  writeFileSync(file, String(before + 1));
  count += 1;
  await release();
  // Long enough for those who poll.
  await sleep(Math.random() * 30);
}
process.stdout.write(JSON.stringify({ count, wrong }), () => process.exit(0));
