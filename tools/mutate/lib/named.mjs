// --named: mistakes that once passed the tests, each with the test that was written against it. They are made by name and not
// by chance, so that they stay killed.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { compileScripts, judged, scratchCopy } from "./own.mjs";

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

/** Each with what its test said: "killed", "survived" or "timed out". */
export async function runNamed(root, entries, { patience, say, tell }) {
  const folder = scratchCopy(root);
  const limit = LIMIT_MS * patience;
  try {
    const passed = new Set();
    for (const entry of entries) {
      const args = argsOf(entry);
      const key = args.join(" ");
      if (passed.has(key)) continue;
      const { outcome, output } = await judged(folder, args, limit);
      if (outcome !== 0 || /no tests|No test files found/i.test(output))
        throw new Error(`these tests fail without a mutant: ${key}\n${output.slice(-4000)}`);
      say(`Without a mutant: ${key} passed`);
      passed.add(key);
    }
    const results = [];
    for (const entry of entries) {
      const source = readFileSync(join(root, entry.file), "utf8");
      writeFileSync(
        join(folder, entry.file),
        source.replace(entry.from, () => entry.to),
      );
      const refused = compileScripts(folder, entry.file);
      const { outcome } = refused === "" ? await judged(folder, argsOf(entry), limit) : { outcome: 0 };
      writeFileSync(join(folder, entry.file), source);
      compileScripts(folder, entry.file);
      const status = outcome === 0 ? "survived" : outcome === "limit" ? "timed out" : "killed";
      results.push({ ...entry, status });
      tell(results.at(-1));
    }
    return results;
  } finally {
    rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 250 });
  }
}
