// --named: defects that users could have met, put back as they were, and mistakes that once passed the tests; each with the test
// that was written against it. They are made by name and not by chance, so that they stay killed.
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build, failureOf, judged, put, scratchCopy } from "./own.mjs";

export const NAMED = "tools/mutate/named.json";
const LIMIT_MS = 300_000;

export const readNamed = (root) => JSON.parse(readFileSync(join(root, NAMED), "utf8"));

/** Those whose text is not there exactly once: the line is another one now. */
export function staleOf(root, entries) {
  return entries.filter(({ file, from }) => readFileSync(join(root, file), "utf8").split(from).length !== 2);
}

const argsOf = ({ test, title }) => [
  test,
  ...(title === undefined ? [] : ["-t", title.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&")]),
];

/**
 * Each with what its test said: "killed", "survived" or "timed out". First every test without a mistake. `built`: the test runs
 * whole processes, so the mistake is made in what is built, too.
 */
export async function runNamed(root, entries, { jobs, patience, say, tell }) {
  const limit = LIMIT_MS * patience;
  const isBuilt = entries.some(({ built }) => built);
  if (isBuilt) build(root);
  const folders = Array.from({ length: Math.min(jobs, entries.length) }, () => scratchCopy(root, isBuilt));
  /** Every item once, by whichever copy is free. */
  const shared = async (items, work) => {
    const left = [...items];
    const worker = async (folder) => {
      for (let item = left.shift(); item !== undefined; item = left.shift()) await work(folder, item);
    };
    await Promise.all(folders.map(worker));
  };
  const results = [];
  try {
    await shared(new Map(entries.map((entry) => [argsOf(entry).join(" "), entry])).values(), async (folder, entry) => {
      const args = argsOf(entry);
      const { outcome, output } = await judged(folder, args, limit);
      if (outcome !== 0 || /no tests|No test files found/i.test(output))
        throw new Error(`these tests fail without a mutant: ${args.join(" ")}\n${output.slice(-4000)}`);
      say(`Without a mutant: ${args.join(" ")} passed`);
    });
    await shared(entries, async (folder, entry) => {
      const source = readFileSync(join(root, entry.file), "utf8");
      const text = source.replace(entry.from, () => entry.to);
      const refused = put(folder, entry.file, text, isBuilt);
      const { outcome, output } =
        refused === "" ? await judged(folder, argsOf(entry), limit) : { outcome: 0, output: refused };
      put(folder, entry.file, source, isBuilt);
      const status = outcome === 0 ? "survived" : outcome === "limit" ? "timed out" : "killed";
      results.push({ ...entry, status, why: failureOf(output) });
      tell(results.at(-1));
    });
    return results;
  } finally {
    for (const folder of folders) rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
  }
}
