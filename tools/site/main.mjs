// npm run docs: makes the site of docs/ in tools/site/out; a dead link fails it. With --if-changed, only if something changed since it was made.
// npm run docs:dev: serves it, and shows changes as they are written.
// npm run docs -- --table: which page is there in which language, and how many of its code blocks the tests run.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { install } from "./install.mjs";

const HOME = import.meta.dirname;
const ROOT = join(HOME, "../..");
/** Written last. */
const MADE = join(HOME, "out/llms.txt");

function run(...words) {
  process.exitCode = spawnSync(process.execPath, words, { cwd: HOME, stdio: "inherit" }).status ?? 1;
}

/** Whether the site is newer than all that it is made of. */
function isFresh() {
  if (!existsSync(MADE)) return false;
  const own = readdirSync(HOME).filter((name) => !["node_modules", "out"].includes(name));
  const sources = ["docs", "src", "package.json", ...own.map((name) => `tools/site/${name}`)];
  const files = sources.flatMap((path) => [path, ...within(path)]);
  return files.every((path) => statSync(join(ROOT, path)).mtimeMs < statSync(MADE).mtimeMs);
}

function within(path) {
  if (!statSync(join(ROOT, path)).isDirectory()) return [];
  return readdirSync(join(ROOT, path), { recursive: true }).map((file) => join(path, file));
}

const [first, ...rest] = process.argv.slice(2);
if (first === "--table") {
  run("--import", join(ROOT, "lab/lib/typescript.mjs"), join(ROOT, "scripts/docs-table.ts"));
} else if (first !== "--if-changed" || !isFresh()) {
  install();
  const startedAt = new Date();
  run(join(HOME, "node_modules/vitepress/bin/vitepress.js"), ...(first === "dev" ? ["dev", ...rest] : ["build"]));
  // What changes while it is made is not in it.
  if (process.exitCode === 0 && first !== "dev") utimesSync(MADE, startedAt, startedAt);
}
