// Many seeds of the quorum simulation: npm run seeds -- [first] [count]
// Plain Node on compiled files: the test runner's way of loading modules costs half of the time.
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const ROOT = resolve(import.meta.dirname, "..");
const FOLDER = resolve(ROOT, "node_modules/.seeds");
const REPORT_EVERY = 10_000;
const [first, count] = [Number(process.argv[2] ?? 1), Number(process.argv[3] ?? 1_000_000)];
if (!(first >= 0 && count > 0)) throw new Error("usage: npm run seeds -- [first seed] [how many]");

rmSync(FOLDER, { recursive: true, force: true });
const options = ["--noEmit", "false", "--declaration", "false", "--rootDir", ROOT, "--outDir", FOLDER];
const config = resolve(FOLDER, "../seeds.tsconfig.json");
writeFileSync(
  config,
  JSON.stringify({
    extends: resolve(ROOT, "tsconfig.json"),
    include: [resolve(ROOT, "test/simulation/quorum-world.ts")],
  }),
);
execFileSync(process.execPath, [resolve(ROOT, "node_modules/typescript/bin/tsc"), "-p", config, ...options], {
  stdio: "inherit",
});
writeFileSync(resolve(FOLDER, "package.json"), '{ "type": "module" }');
const { simulateQuorum } = await import(pathToFileURL(resolve(FOLDER, "test/simulation/quorum-world.js")).href);

// Nobody reads the traces of the errors that faults make.
Error.stackTraceLimit = 0;
const seen = { holds: 0, lost: 0, crashes: 0, amnesias: 0, cuts: 0, pauses: 0, jumps: 0, lists: 0, beyondLimits: 0 };
const startedAt = performance.now();
let broken = 0;
for (let done = 1; done <= count; done += 1) {
  const seed = first + done - 1;
  const { violations, history, faults } = await simulateQuorum(seed);
  if (violations.length > 0) {
    broken += 1;
    console.log(`BROKEN seed ${seed}: ${JSON.stringify(violations)}`);
  }
  seen.holds += history.holds.length;
  for (const hold of history.holds) if (hold.ended === "lost") seen.lost += 1;
  for (const fault of Object.keys(faults)) seen[fault] += faults[fault];
  if (done % REPORT_EVERY === 0 || done === count) {
    const { user, system } = process.cpuUsage();
    const rate = Math.round((done * 1000) / (performance.now() - startedAt));
    const cpuMs = ((user + system) / 1000 / done).toFixed(2);
    console.log(
      `${new Date().toISOString()} ${done} seeds from ${first}: ${broken} broken, ${rate}/s, ${cpuMs} ms of CPU each, ${JSON.stringify(seen)}`,
    );
  }
}
process.exitCode = broken === 0 ? 0 : 1;
