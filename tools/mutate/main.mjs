// npm run mutate -- <target>: see lib/options.mjs, and CONTRIBUTING.md for how to read what it prints.
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { LIST, problemsOf, readList } from "./lib/equivalents.mjs";
import { changedSince, filesOf, globbed, matching } from "./lib/files.mjs";
import { applied, diffOf, sampled } from "./lib/mutants.mjs";
import { NAMED, readNamed, runNamed, staleOf } from "./lib/named.mjs";
import { HELP, parse, UsageError } from "./lib/options.mjs";
import { endAll, ownMutants, runOwn } from "./lib/own.mjs";
import { runQuick } from "./lib/quick.mjs";
import { counted, painter, printSurvivors, progress, scoreLine } from "./lib/report.mjs";
import { installed, runStryker, sampledWithin, strykerMutants } from "./lib/stryker.mjs";
import { TARGETS } from "./lib/targets.mjs";
import { compiler } from "./lib/typescript.mjs";

const ROOT = resolve(import.meta.dirname, "../..");
const colour = process.stdout.isTTY && process.env.NO_COLOR === undefined;
const paint = painter(colour);
const say = (text) => console.error(paint("dim", text));

process.on("exit", endAll);
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(130));

try {
  process.exitCode = await main(parse(process.argv.slice(2)));
} catch (error) {
  if (!(error instanceof UsageError)) throw error;
  console.error(`${error.message}\nnpm run mutate -- --help says what there is.`);
  process.exitCode = 2;
}

async function main(options) {
  if (options.help) {
    console.log(HELP);
    return 0;
  }
  const accepted = readList(ROOT);
  if (options.checkList) {
    const problems = problemsOf(ROOT, accepted);
    for (const problem of problems) console.error(problem);
    console.log(`${LIST}: ${accepted.length} entries, ${problems.length} wrong`);
    return problems.length === 0 ? 0 : 1;
  }
  if (options.named) return named(options);
  if (options.targets.length === 0) throw new UsageError("which target?");

  options.ids = idsOf(options);
  const files = chosenFiles(options);
  const equivalent = new Set(accepted.map(({ id }) => id));
  const written = {};
  let code = 0;
  let found = false;
  for (const target of options.targets) {
    const parts = await partsOf(target, files, options);
    const all = parts.flatMap(({ mutants }) => mutants);
    if (options.ids !== undefined && all.length === 0) continue;
    found = true;
    const chosen = chosenMutants(parts, equivalent, options);
    if (options.list) {
      for (const { id, line } of chosen) console.log(`${id}  line ${line}`);
      console.log(`${target}: ${chosen.length} mutants`);
      continue;
    }
    if (chosen.length === 0) {
      console.log(`${target}: no mutants in these files`);
      continue;
    }
    const results = [];
    for (const { run, whole, mutants } of parts) {
      const some = mutants.filter((mutant) => chosen.includes(mutant));
      if (some.length > 0) results.push(...(await run(some, whole && some.length === mutants.length)));
    }
    const counts = counted(results);
    if (options.id !== undefined) replayed(results);
    else printSurvivors(ROOT, results, paint);
    console.log(`\n${scoreLine(target, counts, all.filter(({ id }) => equivalent.has(id)).length)}`);
    written[target] = { ...counts, mutants: results.map(withDiff) };
    if (counts.score < options.least) code = 1;
  }
  if (options.ids !== undefined && !found)
    throw new UsageError(`no mutant has the id ${[...options.ids].join(" or ")}; --list shows them`);
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(written, null, 2)}\n`);
  return code;
}

/** The mistakes of the list, of the targets that are given or of all. Exit code 1 when one of them is not killed. */
async function named({ targets, jobs, patience }) {
  const entries = readNamed(ROOT).filter(({ target }) => targets.length === 0 || targets.includes(target));
  const stale = staleOf(ROOT, entries);
  for (const { file, from } of stale) console.error(`${NAMED}: ${file} no longer contains exactly once: ${from}`);
  if (stale.length > 0) return 1;
  const tell = ({ status, target, what, why }) =>
    console.log(`${paint(status === "killed" ? "green" : "red", status)} ${target}: ${what}\n  ${paint("dim", why)}`);
  const results = await runNamed(ROOT, entries, { jobs, patience, say, tell });
  const killed = results.filter(({ status }) => status === "killed").length;
  console.log(`\n${killed} of ${results.length} killed`);
  return killed === results.length ? 0 : 1;
}

/** The ids that are asked for, if any: one, or those of an earlier run that are not known to be killed. */
function idsOf({ id, again }) {
  if (id !== undefined) return new Set([id]);
  if (again === undefined) return undefined;
  const mutants = Object.values(JSON.parse(readFileSync(again, "utf8"))).flatMap((target) => target.mutants);
  return new Set(mutants.filter(({ status }) => ["survived", "timed out"].includes(status)).map((one) => one.id));
}

function chosenFiles({ changed, only, ids }) {
  let files = filesOf(ROOT);
  if (changed !== undefined) {
    let since;
    try {
      since = changedSince(ROOT, changed);
    } catch {
      throw new UsageError(`git knows no commit "${changed}"`);
    }
    files = files.filter((file) => since.has(file));
  }
  if (only !== undefined) {
    files = files.filter(globbed(only));
    if (files.length === 0) throw new UsageError(`no file matches ${only}`);
  }
  if (ids === undefined) return files;
  const own = new Set([...ids].map((id) => id.split(":")[0]));
  return files.filter((file) => own.has(file));
}

/** The mutants of a target by who makes them, and how each is run. */
async function partsOf(target, files, options) {
  const { stryker, own } = TARGETS[target];
  const parts = [];
  const wanted = (mutants) => (options.ids === undefined ? mutants : mutants.filter(({ id }) => options.ids.has(id)));
  let check;
  const compiles = (file, text) => (check ??= compiler(ROOT))(file, text);
  const { jobs, patience, verbose = false } = options;
  const common = { jobs, patience, verbose, colour, say };
  if (stryker !== undefined && matching(files, stryker.files).length > 0) {
    installed(say);
    const run = async (mutants, whole) => {
      const results = await runStryker(ROOT, stryker, mutants, { ...common, whole });
      return results.map((one) => {
        if (one.status !== "survived") return one;
        const text = applied(readFileSync(join(ROOT, one.file), "utf8"), one);
        return compiles(one.file, text) ? one : { ...one, status: "does not compile" };
      });
    };
    parts.push({
      run,
      whole: options.ids === undefined,
      mutants: wanted(await strykerMutants(ROOT, matching(files, stryker.files))),
    });
  }
  if (own !== undefined && matching(files, own.files).length > 0) {
    const run = (mutants) => {
      const tell = progress(mutants.length, { verbose: options.verbose, paint });
      if (options.quick) return runQuick(ROOT, target, mutants, { ...common, tell });
      return runOwn(ROOT, own, mutants, {
        ...common,
        by: options.by,
        compiles,
        tell,
        baseline: options.id === undefined,
      });
    };
    const made = fromAll(own, files).filter(({ file }) => !options.quick || !file.endsWith(".ts"));
    parts.push({ run, whole: false, mutants: wanted(made) });
  }
  return parts;
}

/** Of the migrations all are read, because which definition is the newest depends on the others. */
function fromAll(own, files) {
  const kept = new Set(files);
  return ownMutants(ROOT, matching(filesOf(ROOT), own.files)).filter(({ file }) => kept.has(file));
}

/** A sample takes from each part of a target as many as it has of all. */
function chosenMutants(parts, equivalent, { ids, id, sample, seed }) {
  const left = parts.map(({ whole, mutants }) => ({
    whole,
    mutants: id === undefined ? mutants.filter((mutant) => !equivalent.has(mutant.id)) : mutants,
  }));
  const total = left.reduce((sum, { mutants }) => sum + mutants.length, 0);
  return left.flatMap(({ whole, mutants }) => {
    if (sample === undefined || ids !== undefined) return mutants;
    const count = Math.round((sample * mutants.length) / total);
    return whole ? sampledWithin(mutants, count, seed) : sampled(mutants, count, seed);
  });
}

function replayed(results) {
  for (const mutant of results) {
    console.log(
      `${diffOf(readFileSync(join(ROOT, mutant.file), "utf8"), mutant)}\n\n${mutant.output ?? ""}\n${mutant.id}: ${mutant.status}`,
    );
  }
}

function withDiff({ id, file, line, operator, status, by, why, note, ...edit }) {
  const diff = diffOf(readFileSync(join(ROOT, file), "utf8"), { file, ...edit });
  return {
    id,
    file,
    line,
    operator,
    status,
    ...(by ? { by } : {}),
    ...(why ? { why } : {}),
    ...(note ? { note } : {}),
    diff,
  };
}
