import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { install } from "../test/servers/packages.js";
import { brokenLibrary } from "./broken.js";
import { progress } from "./lib/progress.js";
import { circumstances, ROOT, write, writeJson } from "./lib/results.js";
import { type CellRun, choose, isBlank, runMatrix } from "./matrix.js";
import { matrix, pagesOf } from "./report.js";
import { type Results, resultsOf } from "./results.js";

const RESULTS = "lab/results/faults.json";

const USAGE = `npm run lab -- [engine …] [fault …] [--only a,b] [--seed n] [--repeat n] [--json] [--broken tokens|deadline]
Without a choice every fault is tried on every engine, and lab/results/faults.json and docs/faults.md are written anew.
npm run lab -- --page: only the page, from the results that are there.`;

const OPTIONS = {
  only: { type: "string", multiple: true, default: [] as string[] },
  seed: { type: "string", default: "1" },
  repeat: { type: "string", default: "1" },
  json: { type: "boolean", default: false },
  page: { type: "boolean", default: false },
  broken: { type: "string" },
  help: { type: "boolean", default: false },
} as const;

/** The words of the command line; a mistake in them is told with what is allowed. */
function read() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { ...OPTIONS } });
  const [seed, repeat] = [Number(values.seed), Number(values.repeat)];
  if (!Number.isSafeInteger(seed) || seed < 0) throw new Error("--seed is a whole number");
  if (!Number.isSafeInteger(repeat) || repeat < 1) throw new Error("--repeat is a whole number from 1");
  const words = [...positionals, ...values.only.flatMap((text) => text.split(","))];
  if (values.help) throw new Error("every fault on every engine");
  return { ...values, seed, repeat, words, ...choose(words) };
}

function given(): ReturnType<typeof read> {
  try {
    return read();
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return process.exit(2);
  }
}

function writePages(results: Results): void {
  for (const [path, content] of Object.entries(pagesOf(results))) write(path, content);
}

const { engines, faults, words, seed, repeat, json, page, broken } = given();
if (page) {
  writePages(JSON.parse(readFileSync(join(ROOT, RESULTS), "utf8")) as Results);
  process.exit(0);
}
install(["Redis", "PostgreSQL", "MariaDB", "etcd", "ZooKeeper", "GCC"]);
const command = ["npm run lab", ...(process.argv.length > 2 ? ["--", ...process.argv.slice(2)] : [])].join(" ");
const about = circumstances(command);
const library = broken === undefined ? undefined : brokenLibrary(broken);
const startedAt = performance.now();
const count = faults.flatMap(({ expected }) => engines.filter(({ name }) => !isBlank(expected[name]))).length * repeat;
let done = 0;
const runs = await runMatrix({
  engines,
  faults,
  library: library?.path ?? `${ROOT}/dist`,
  seed,
  repeat,
  started: (engine, fault) => progress(`${done} of ${count} · ${engine.title}: ${fault.title}`),
  ended(one) {
    done += 1;
    progress("");
    if (!json) console.log(lineOf(one));
  },
}).finally(() => library?.remove());

const results = resultsOf(runs, { circumstances: about, seed, repeat, tookMs: performance.now() - startedAt });
const wrong = runs.filter(({ cell }) => !cell.ok);
if (words.length === 0 && broken === undefined) {
  writeJson(RESULTS, results);
  writePages(results);
}
if (json) console.log(JSON.stringify(results, null, 1));
else console.log(`\n${matrix(results)}\n\n${count - wrong.length} of ${count} runs as expected`);
process.exitCode = wrong.length === 0 ? 0 : 1;

function lineOf({ cell: { engine, fault, outcome, ok, wrong, findings, tookMs } }: CellRun): string {
  const figure = (what: string, value: number | null | undefined): string[] =>
    value === null || value === undefined ? [] : [`${what} ${Math.round(value)} ms`];
  const figures = [
    ...figure("told, from the lease's end", findings?.toldAfterDeadlineMs),
    ...figure("told, from the next grant", findings?.toldAfterNextGrantMs),
    ...figure("others after", findings?.othersWentOnMs),
    ...(findings === null ? [] : [`${findings.fencedRefused} of ${findings.fencedStale} stale writes refused`]),
    `${(tookMs / 1000).toFixed(1)} s`,
  ];
  const head = `${ok ? "ok   " : "WRONG"} ${engine.padEnd(10)} ${fault.padEnd(16)} ${outcome} (${figures.join(", ")})`;
  return [head, ...wrong.map((text) => `      ${text}`)].join("\n");
}
