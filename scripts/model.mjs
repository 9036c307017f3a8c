// Random requests to an engine on its real store and to the reference, by virtual time, until so many were compared:
//   npm run model -- <engine> [--commands 1000000] [--ways] [--seed n [--path p --replay-path r]]
// --ways (postgres, mysql): the engine is two, its fast ways and its plain ones, which are compared with each other as well.
// The engines are the files of test/virtual. A difference is made as small as it can be, printed with the command that
// repeats it, and the exit code is 1. Ctrl-C ends it after the round under way, with the figures so far.
import { readdirSync } from "node:fs";
import { register } from "node:module";
import { resolve } from "node:path";
import { parseArgs } from "node:util";

const ROOT = resolve(import.meta.dirname, "..");
register("../lab/lib/typescript-hooks.mjs", import.meta.url);

/** Each round has clients and a seed of its own. Some have few long runs, in which the engines clean up more than once. */
const SHORT = { runs: 20, maxCommands: 80 };
const LONG = { runs: 4, maxCommands: 400 };
const LONG_EVERY = 4;
/** On a terminal the line is written over; in a file each stays. */
const PROGRESS_EVERY_MS = process.stdout.isTTY ? 500 : 60_000;
const SHRINK_WITHIN_MS = 120_000;

const engines = readdirSync(resolve(ROOT, "test/virtual"))
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.slice(0, -3));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    commands: { type: "string", default: "1000000" },
    seed: { type: "string" },
    path: { type: "string" },
    "replay-path": { type: "string" },
    ways: { type: "boolean", default: false },
  },
});
const [engine] = positionals;
const most = Number(values.commands);
const firstSeed = Number(values.seed ?? Date.now() % 2 ** 31);
if (!engines.includes(engine) || !(most > 0) || !Number.isSafeInteger(firstSeed)) {
  console.error(`usage: npm run model -- ${engines.join(" | ")} [--commands 1000000] [--ways] [--seed n]`);
  process.exit(2);
}

const load = (path) => import(resolve(ROOT, path));
const { virtual } = await load(`test/virtual/${engine}.ts`);
const { compareWithReference } = await load("src/testing/compare.ts");
const store = await virtual();
if (values.ways && store.ways === undefined) {
  console.error(`${engine} has no ways to compare here`);
  await store.close();
  process.exit(2);
}
const setting = values.ways ? { ...store.setting, engine: store.ways() } : store.setting;
const which = `${engine}${values.ways ? " --ways" : ""}`;
const startedAt = performance.now();
let [compared, rounds, shownAt] = [0, 0, startedAt];
const stop = new AbortController();
process.once("SIGINT", () => stop.abort());
try {
  for (let seed = firstSeed; compared < most && !stop.signal.aborted; seed += 1) {
    await round(seed);
    if (values.path !== undefined) break;
    show(seed);
  }
  console.log(
    `${process.stdout.isTTY ? "\r" : ""}${summary()}, no difference${stop.signal.aborted ? ", stopped" : ""}`,
  );
} catch (error) {
  console.log(`\n${summary()}, and then a difference:\n`);
  console.log(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  await store.close();
}

async function round(seed) {
  const replay = values.path === undefined ? {} : { path: values.path, replayPath: values["replay-path"] };
  try {
    await compareWithReference({
      ...setting,
      ...(seed % LONG_EVERY === 0 ? LONG : SHORT),
      seed,
      withinMs: SHRINK_WITHIN_MS,
      onCompared: (requests) => (compared += requests),
      ...replay,
    });
    rounds += 1;
  } catch (error) {
    const text = String(error instanceof Error ? error.message : error);
    const path = /path: "([^"]*)"/.exec(text)?.[1];
    const replayPath = /replayPath="([^"]*)"/.exec(text)?.[1];
    const whole = `npm run model -- ${which} --seed ${seed} --commands 1`;
    const small = path === undefined ? "" : `\nOnly that: ${whole} --path ${path} --replay-path "${replayPath}"`;
    // What earlier rounds left in the store can matter.
    const before = `\nWith the rounds before it: npm run model -- ${which} --seed ${firstSeed} --commands ${compared + 1}`;
    throw new Error(`${text}\n\nReplay: ${whole}${small}${before}`, { cause: error });
  }
}

function summary() {
  const seconds = (performance.now() - startedAt) / 1000;
  const perMinute = Math.round((compared * 60) / seconds);
  return `${which}: ${compared} requests compared in ${rounds} rounds from seed ${firstSeed}, ${Math.round(seconds)} s, ${perMinute} per minute`;
}

function show(seed) {
  if (performance.now() - shownAt < PROGRESS_EVERY_MS) return;
  shownAt = performance.now();
  const line = `${summary()}, at seed ${seed}`;
  process.stdout.write(process.stdout.isTTY ? `\r${line}` : `${line}\n`);
}
