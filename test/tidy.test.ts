import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";
import { expect, test } from "vitest";
import * as errors from "../src/core/errors.js";

const ROOT = resolve(import.meta.dirname, "..");

function files(folder: string, ending: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}/${path.split(sep).join("/")}`)
    .filter((path) => path.endsWith(ending) && statSync(join(ROOT, path)).isFile());
}

const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");
const lines = (file: string): number => read(file).split("\n").length - 1;
const sources = files("src", ".ts");

/** Whom the files of a layer may import, besides their own layer. Everything may use `core`. */
const LAYERS: Record<string, readonly string[]> = {
  core: [],
  recipes: ["core"],
  // What the engines on a lock table share.
  sql: ["core", "engine-kit"],
  // What the engines on an ordered list of nodes or keys share.
  queue: ["core", "engine-kit"],
  // What all engines share.
  "engine-kit": ["core"],
  engines: ["core", "queue", "sql", "engine-kit"],
  fence: ["core"],
  testing: ["core", "engines", "recipes", "root"],
  root: ["core", "recipes", "engine-kit", "engines"],
  // The edge: it may use everything, and nothing uses it.
  telemetry: ["core", "root"],
  cron: ["core", "recipes", "root"],
  nest: ["core", "recipes", "engines", "root"],
  web: ["core", "recipes", "root"],
  live: ["core", "recipes", "root"],
  cli: ["core", "recipes", "engines", "root", "live"],
};

function layerOf(path: string): string {
  const [, folder = "", rest] = path.split("/");
  return rest === undefined ? "root" : folder;
}

/** The sources that a source imports, by type or by value. */
function importsOf(path: string): string[] {
  return [...read(path).matchAll(/(?:from|import\()\s*"(\.[^"]+)"/g)].map(([, target = ""]) =>
    relative(ROOT, resolve(ROOT, dirname(path), target.replace(/\.js$/, ".ts")))
      .split(sep)
      .join("/"),
  );
}

test("imports point one way: recipes -> core <- engines, and no engine knows another", () => {
  const wrong: string[] = [];
  for (const path of sources) {
    for (const imported of importsOf(path)) {
      const [from, to] = [layerOf(path), layerOf(imported)];
      const otherEngine = from === "engines" && to === "engines" && path.split("/")[2] !== imported.split("/")[2];
      if (otherEngine || (from !== to && !LAYERS[from]?.includes(to))) wrong.push(`${path} imports ${imported}`);
    }
  }
  expect(wrong).toEqual([]);
});

test("no source imports itself, by whatever way", () => {
  const done = new Set<string>();
  const cycles: string[] = [];
  const follow = (path: string, way: readonly string[]): void => {
    const seen = way.indexOf(path);
    if (seen >= 0) cycles.push([...way.slice(seen), path].join(" -> "));
    if (seen >= 0 || done.has(path)) return;
    for (const imported of importsOf(path)) follow(imported, [...way, path]);
    done.add(path);
  };
  for (const path of sources) follow(path, []);
  expect(cycles).toEqual([]);
});

test("time and chance are passed in", () => {
  const banned: [RegExp, string][] = [
    [/\bDate\.now\(/, "clock.wallMs()"],
    [/\bperformance\.now\(/, "clock.now()"],
    [/\bMath\.random\(/, "chance.fraction()"],
    [/\bset(?:Timeout|Interval)\(/, "clock.after()"],
    [/\brandom(?:Bytes|UUID)\(/, "chance.id()"],
  ];
  const wrong = sources
    // In the browser there is one clock, and nobody to pass another in.
    .filter((path) => path !== "src/core/clock.ts" && !path.startsWith("src/live/page/"))
    .flatMap((path) =>
      banned.filter(([what]) => what.test(read(path))).map(([what, use]) => `${path}: ${what.source} -> use ${use}`),
    );
  expect(wrong).toEqual([]);
});

test("the contract stays on one screen, and the files a newcomer reads stay short", () => {
  const path = ["src/index.ts", "src/recipes/mutex.ts", "src/core/hold.ts", "src/core/wait.ts", "src/core/engine.ts"];
  expect(lines("src/core/engine.ts")).toBeLessThanOrEqual(100);
  expect(path.filter((file) => lines(file) > 310)).toEqual([]);
  // What is compiled from Lua and SQL is as long as they are.
  const written = sources.filter((file) => !file.endsWith(".generated.ts"));
  expect(written.filter((file) => lines(file) > 350)).toEqual([]);
});

test("docs/reference/errors.md lists every error with its code, and no other", () => {
  const made = Object.entries(errors).flatMap(([name, made]) =>
    name !== "HoldfastError" && "code" in made ? [`${name} ${made.code}`] : [],
  );
  const listed = [...read("docs/reference/errors.md").matchAll(/^\| `(\w+)` \| `(HOLDFAST_\w+)` \|/gm)];
  expect(listed.map(([, name, code]) => `${name} ${code}`).toSorted()).toEqual(made.toSorted());
});

test("package.json exports every engine and nothing that does not exist", () => {
  const { exports } = JSON.parse(read("package.json")) as { exports: Record<string, string | { types: string }> };
  const engines = readdirSync(join(ROOT, "src/engines"));
  for (const engine of engines) expect(Object.keys(exports)).toContain(`./${engine}`);
  for (const target of Object.values(exports)) {
    if (typeof target === "string") continue;
    const source = target.types.replace("./dist/", "src/").replace(/\.d\.ts$/, ".ts");
    expect(sources).toContain(source);
  }
});
