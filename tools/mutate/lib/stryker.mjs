// Stryker for TypeScript that is tested in one process. It is loaded only here, when it is needed: the rest of the tool
// works without being installed.
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, relative, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { named, sampled } from "./mutants.mjs";

const HOME = resolve(import.meta.dirname, "..");
// Texts are words of errors and of docs more often than decisions, and those that decide are types: a mutant of them says
// little and there are as many as of all other kinds together.
const EXCLUDED = ["StringLiteral", "Regex"];

/** Installs the folder's own packages, once. */
export function installed(say) {
  const stamp = join(HOME, "node_modules/.package-lock.json");
  if (existsSync(stamp)) return;
  say("Installing Stryker into tools/mutate (once) …");
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: HOME,
    stdio: ["ignore", "inherit", "inherit"],
  });
}

const load = (name) => import(pathToFileURL(createRequire(join(HOME, "package.json")).resolve(name)).href);
const offsetIn = (starts, { line, column }) => starts[line] + column;

function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

/** All mutants that Stryker makes of these files, with our ids. */
export async function strykerMutants(root, files) {
  const { Instrumenter } = await load("@stryker-mutator/instrumenter");
  const nothing = () => {};
  const logger = { debug: nothing, info: nothing, warn: nothing, trace: nothing, isDebugEnabled: () => false };
  const all = [];
  for (const file of files) {
    const content = readFileSync(join(root, file), "utf8");
    const options = { plugins: null, excludedMutations: EXCLUDED, ignorers: [], noHeader: true };
    const { mutants } = await new Instrumenter(logger).instrument([{ name: file, mutate: true, content }], options);
    const starts = lineStarts(content);
    const edits = mutants
      .filter(({ status }) => status !== "Ignored")
      .map(({ location, mutatorName, replacement }) => ({
        operator: mutatorName,
        at: offsetIn(starts, location.start),
        end: offsetIn(starts, location.end),
        to: replacement,
      }));
    all.push(...named(file, content, edits));
  }
  return all;
}

/**
 * Stryker runs all mutants that stand within a range. So a sample takes those along that stand inside of a chosen one, and
 * leaves out a mutant with too many of them inside: it would be most of the sample, and such whole blocks rarely survive.
 */
export function sampledWithin(mutants, count, seed) {
  const chosen = new Set();
  const most = Math.max(4, count / 10);
  for (const one of sampled(mutants, mutants.length, seed, true)) {
    if (chosen.size >= count) break;
    const inside = mutants.filter(({ file, at, end }) => file === one.file && at >= one.at && end <= one.end);
    if (inside.length <= most) for (const mutant of inside) chosen.add(mutant);
  }
  return mutants.filter((mutant) => chosen.has(mutant));
}

const keyOf = ({ file, operator, at, end, to }) => `${file} ${operator} ${at} ${end} ${to}`;

/** Runs these mutants, and answers each with its outcome. */
export async function runStryker(root, { tests, seeds, testMs }, mutants, options) {
  const { jobs, whole, colour, verbose, patience, say } = options;
  if (!existsSync(join(root, "dist"))) {
    say("Building dist, which some tests run …");
    execFileSync("npm", ["run", "-s", "build"], { cwd: root, stdio: "inherit" });
  }
  process.env.HOLDFAST_MUTATE_TESTS = JSON.stringify(tests);
  process.env.HOLDFAST_MUTATE_TIMEOUT_MS = String(testMs * patience);
  process.env.HOLDFAST_SEEDS ??= String(seeds);
  const { Stryker } = await load("@stryker-mutator/core");
  const sources = new Map(mutants.map(({ file }) => [file, readFileSync(join(root, file), "utf8")]));
  const starts = new Map([...sources].map(([file, text]) => [file, lineStarts(text)]));
  const reporter = verbose ? "each" : process.stdout.isTTY ? "progress" : "progress-append-only";
  const results = await new Stryker({
    testRunner: "vitest",
    plugins: ["@stryker-mutator/vitest-runner", join(HOME, "lib/each.mjs")],
    vitest: { configFile: "tools/mutate/vitest.config.mjs", related: false },
    mutate: whole ? [...sources.keys()] : mutants.map((mutant) => rangeOf(mutant, starts.get(mutant.file))),
    mutator: { excludedMutations: EXCLUDED },
    coverageAnalysis: "perTest",
    concurrency: jobs,
    timeoutMS: 10_000 * patience,
    timeoutFactor: 3 * patience,
    dryRunTimeoutMinutes: 15 * patience,
    tempDirName: join(tmpdir(), `holdfast-mutate-${process.pid}`),
    cleanTempDir: "always",
    ignorePatterns: ["bench", "lab"],
    reporters: [reporter],
    allowConsoleColors: colour,
    logLevel: verbose ? "info" : "warn",
    disableTypeChecks: true,
    thresholds: { high: 100, low: 0, break: null },
  }).runMutationTest();
  const outcomes = new Map();
  for (const result of results) {
    const file = relative(root, result.fileName ?? "");
    const starting = starts.get(file);
    if (starting === undefined) continue;
    const at = offsetIn(starting, { line: result.location.start.line - 1, column: result.location.start.column - 1 });
    const end = offsetIn(starting, { line: result.location.end.line - 1, column: result.location.end.column - 1 });
    outcomes.set(keyOf({ file, operator: result.mutatorName, at, end, to: result.replacement }), result);
  }
  return mutants.map((mutant) => {
    const result = outcomes.get(keyOf(mutant));
    const killed = result?.status === "Killed" || result?.status === "Timeout" || result?.status === "RuntimeError";
    return {
      ...mutant,
      status:
        result === undefined ? "not run" : killed ? (result.status === "Timeout" ? "timed out" : "killed") : "survived",
      note: result?.status === "NoCoverage" ? "no test runs it" : "",
      output: result?.statusReason ?? "",
    };
  });
}

/** As Stryker's `mutate` reads it: lines from 1, columns from 0. */
function rangeOf({ file, at, end }, starts) {
  const place = (offset) => {
    let line = 0;
    while (line + 1 < starts.length && starts[line + 1] <= offset) line += 1;
    return `${line + 1}:${offset - starts[line]}`;
  };
  return `${file}:${place(at)}-${place(end)}`;
}
