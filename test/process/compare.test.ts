import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { pagesOf } from "../../lab/compare/page.js";
import { type Contestant, figuresOf, type Measure, type Results } from "../../lab/compare/results.js";

const ROOT = resolve(import.meta.dirname, "../..");
const ENGINES = ["memory", "sqlite", "redis", "quorum", "postgres", "mysql", "zookeeper", "etcd"];
const MEASURES: readonly Measure[] = ["pair", "flight", "handOver", "hot", "waiting", "crash", "heap"];
const readResults = (folder: string): Results =>
  JSON.parse(readFileSync(join(folder, "lab/results/comparison.json"), "utf8")) as Results;
const isMissing = (contestant: Contestant, measure: Measure): boolean => {
  const figures = figuresOf(contestant, measure);
  return typeof figures === "string" && /^not run|^broke down/.test(figures);
};
const isMeasured = (contestant: Contestant, measure: Measure): boolean =>
  typeof figuresOf(contestant, measure) !== "string";

/** Without the peers, which `npm run compare` installs first. */
async function compare(...options: readonly string[]): Promise<{ stdout: string; stderr: string }> {
  const program = ["--import", join(ROOT, "lab/lib/typescript.mjs"), join(ROOT, "lab/compare/run.mjs")];
  return promisify(execFile)(process.execPath, [...program, ...options], { timeout: 170_000 });
}

test("npm run compare measures, keeps the figures and makes the pages of them", { timeout: 180_000 }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-compare-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const quick = ["--quick", "--repeat", "1", "--seed", "7", "--out", folder];
  const { stdout, stderr } = await compare("--only", "memory,sqlite,holdfast", "--json", ...quick);
  expect(stderr).toBe("");

  const results = readResults(folder);
  expect(JSON.parse(stdout)).toEqual(results);
  expect(Object.keys(results.engines)).toEqual(["memory", "sqlite"]);
  const sqlite = results.engines.sqlite?.contestants.holdfast ?? {};
  const numbers = MEASURES.filter((measure) => isMeasured(sqlite, measure));
  expect(numbers).toEqual(MEASURES.filter((measure) => measure !== "waiting"));
  expect(sqlite.waiting).toEqual({ not: "no server" });
  // The holder was really killed: its lease would have kept the lock for ten seconds.
  expect(sqlite.crash).toMatchObject({ ms: expect.toSatisfy((ms: number) => ms > 0 && ms < 9000) });
  for (const [path, text] of Object.entries(pagesOf(results))) {
    expect(readFileSync(join(folder, path), "utf8"), path).toBe(text);
  }

  // A part that is measured anew leaves the others alone.
  await compare("--only", "memory,pair,holdfast", ...quick);
  const again = readResults(folder);
  expect(again.runs.map(({ seed }) => seed)).toEqual([7, 7]);
  expect(again.engines.sqlite).toEqual(results.engines.sqlite);
  expect(again.engines.memory?.contestants.holdfast?.hot).toEqual(results.engines.memory?.contestants.holdfast?.hot);
});

test("npm run compare refuses what it does not know", async () => {
  await expect(compare("--only", "redsi")).rejects.toMatchObject({ code: 2, stderr: /there is no redsi/ });
  await expect(compare("--repeat", "0")).rejects.toMatchObject({ code: 2, stderr: /--repeat takes a whole number/ });
});

test("the comparison in docs/ is exactly what the committed results give, and none of it is missing", () => {
  const results = readResults(ROOT);
  const pages = pagesOf(results);
  for (const [path, text] of Object.entries(pages)) {
    expect(existsSync(join(ROOT, path)), `${path}: make it with \`npm run compare -- --page\``).toBe(true);
    expect(readFileSync(join(ROOT, path), "utf8"), path).toBe(text);
  }
  expect(Object.keys(results.engines)).toEqual(ENGINES);
  for (const { contestants } of Object.values(results.engines)) {
    const missing = Object.entries(contestants).flatMap(([name, contestant]) =>
      MEASURES.filter((measure) => isMissing(contestant, measure)).map((measure) => `${name}: ${measure}`),
    );
    expect(missing).toEqual([]);
  }
  const words = Object.entries(pages).flatMap(([path, text]) =>
    /not run|broke down|undefined|NaN|Infinity|\| *\|/.test(text) ? [path] : [],
  );
  expect(words).toEqual([]);
});
