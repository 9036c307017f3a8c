// Which tests reach which mutant of TypeScript. The run without a mutant finds out: a probe stands before each statement that
// holds one, and notes the tests that are under way when it is passed. A test that never comes there cannot fail, so it does
// not judge; a mutant that no test reaches has survived without being run.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const CONFIG = "vitest.reach.config.ts";
const RECORDER = "vitest.reach.setup.ts";
const NOTES = "reach.jsonl";

/** A source with a probe for each of these mutants: `globalThis.holdfastReached?.(its number, whether it stands outside of functions)`. */
export function probed(source, mutants) {
  const file = ts.createSourceFile("file.ts", source, ts.ScriptTarget.Latest, true);
  const inserts = mutants.flatMap(({ number, at, end }) => {
    const { node, isStatement } = placeOf(innermost(file, at, end));
    const call = `globalThis.holdfastReached?.(${number}, ${isOfModule(node)})`;
    if (isStatement) return [{ at: node.getStart(file), text: `${call};` }];
    return [
      { at: node.getStart(file), text: `(${call},` },
      { at: node.getEnd(), text: ")", closes: true },
    ];
  });
  // Where one expression ends and another begins, the first is closed first.
  const ordered = inserts.toSorted((a, b) => b.at - a.at || Number(a.closes ?? false) - Number(b.closes ?? false));
  return ordered.reduce((text, one) => text.slice(0, one.at) + one.text + text.slice(one.at), source);
}

function innermost(node, at, end) {
  const inside = node.getChildren().find((child) => child.getStart() <= at && end <= child.getEnd());
  return inside === undefined ? node : innermost(inside, at, end);
}

/** The nearest statement of a block, or the expression that a function, a parameter or a field of a class has instead. */
function placeOf(node) {
  const { parent } = node;
  if (parent === undefined || ts.isSourceFile(parent)) return { node, isStatement: true };
  const list = ts.isSyntaxList(node) ? undefined : blockOf(node);
  if (list !== undefined) return { node, isStatement: true };
  const isValue = ts.isArrowFunction(parent) ? parent.body === node : parent.initializer === node;
  const holdsValue = ts.isArrowFunction(parent) || ts.isParameter(parent) || ts.isPropertyDeclaration(parent);
  if (isValue && holdsValue && !ts.isBlock(node)) return { node, isStatement: false };
  return placeOf(parent);
}

/** It is run when its module is evaluated, and not by a call. */
function isOfModule(node) {
  for (let at = node; at !== undefined; at = at.parent) {
    const isField =
      ts.isPropertyDeclaration(at) && !at.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.StaticKeyword);
    if (ts.isFunctionLike(at) || isField) return false;
  }
  return true;
}

function blockOf({ parent }) {
  return ts.isBlock(parent) || ts.isSourceFile(parent) || ts.isCaseClause(parent) || ts.isDefaultClause(parent)
    ? parent
    : undefined;
}

/** A test lasts until all that it cleans up is done; what happens between tests belongs to all tests of the file. */
const RECORDER_SOURCE = `
import { appendFileSync } from "node:fs";
import { beforeEach, expect } from "vitest";
import { recorder } from "./tools/mutate/lib/recorder.mjs";
const file = expect.getState().testPath;
const note = (one) => appendFileSync(${JSON.stringify(NOTES)}, JSON.stringify({ file, ...one }) + "\\n");
const nameOf = (task) => (task.suite ? nameOf(task.suite) + " " : "") + task.name;
const { reached, begun, ended } = recorder(note, (globalThis.holdfastEvaluated ??= new Set()));
globalThis.holdfastReached = reached;
beforeEach(({ task, onTestFinished }) => {
  const test = nameOf(task);
  const startedAt = performance.now();
  begun(test);
  onTestFinished(() => ended(test, performance.now() - startedAt));
});
`;

/**
 * Files are run in the order of the command line, in one module graph. Probes note something only in the run without a mutant.
 * What was compiled is kept: of all modules only the mutant's is another one.
 */
const CONFIG_SOURCE = `
import { mergeConfig } from "vitest/config";
import { BaseSequencer } from "vitest/node";
import own from "./vitest.config.js";
const rank = ({ moduleId }) => process.argv.findIndex((arg) => arg.endsWith(".test.ts") && moduleId.endsWith(arg));
class AsGiven extends BaseSequencer {
  sort(files) {
    return files.toSorted((a, b) => rank(a) - rank(b));
  }
}
const setupFiles = process.env.HOLDFAST_REACH === undefined ? [] : ["./${RECORDER}"];
const experimental = { fsModuleCache: true, fsModuleCachePath: "./.compiled" };
export default mergeConfig(own, { test: { setupFiles, sequence: { sequencer: AsGiven }, isolate: false, experimental } });
`;

/** What `judgesOf` names has to be in every copy of the tree in which a mutant is judged. */
export function prepare(folder) {
  writeFileSync(join(folder, CONFIG), CONFIG_SOURCE);
}

/** Puts probes for the mutants of TypeScript into a copy of the tree. `args` run its tests with them; `read` tells what they saw. */
export function recording(root, folder, mutants) {
  const numbered = mutants
    .map((mutant, number) => ({ ...mutant, number }))
    .filter((mutant) => mutant.file.endsWith(".ts"));
  const files = [...new Set(numbered.map(({ file }) => file))];
  for (const file of files) {
    const own = numbered.filter((mutant) => mutant.file === file);
    writeFileSync(join(folder, file), probed(readFileSync(join(root, file), "utf8"), own));
  }
  writeFileSync(join(folder, RECORDER), RECORDER_SOURCE);
  prepare(folder);
  const numbers = new Map(numbered.map(({ id, number }) => [id, number]));
  return {
    args: ["--config", CONFIG],
    env: { HOLDFAST_REACH: "1" },
    read: () => (existsSync(join(folder, NOTES)) ? readFileSync(join(folder, NOTES), "utf8") : ""),
    end: () => {
      for (const file of files) writeFileSync(join(folder, file), readFileSync(join(root, file), "utf8"));
    },
    numberOf: (id) => numbers.get(id),
  };
}

/** What a recorder noted, for each mutant's number: the tests of each file, "" for all of them; and how long each test took. */
export function reachOf(folder, text) {
  const reached = new Map();
  const took = new Map();
  for (const line of text.split("\n").filter((one) => one !== "")) {
    const { file, number, test, ms } = JSON.parse(line);
    const path = file.slice(folder.length + 1);
    if (!took.has(path)) took.set(path, new Map());
    if (ms !== undefined) took.get(path).set(test, ms);
    if (number === undefined) continue;
    if (!reached.has(number)) reached.set(number, new Map());
    const files = reached.get(number);
    files.set(path, (files.get(path) ?? new Set()).add(test));
  }
  return { reached, took };
}

const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");

/**
 * One run of all tests that reach a mutant, the files in order of how long that takes; null when none does. Each start of
 * vitest costs as much as many tests, so there is one.
 */
export function judgesOf(files, took) {
  if (files === undefined) return null;
  const testsIn = (file) => (files.get(file).has("") ? [...took.get(file).keys()] : [...files.get(file)]);
  const msOf = (file) => testsIn(file).reduce((sum, test) => sum + (took.get(file).get(test) ?? 0), 0);
  const ordered = [...files.keys()].toSorted((a, b) => msOf(a) - msOf(b));
  const tests = [...new Set(ordered.flatMap(testsIn))];
  return [...ordered, "-t", `^(?:${tests.map(escaped).join("|")})$`, "--config", CONFIG];
}
