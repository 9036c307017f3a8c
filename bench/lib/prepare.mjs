// Before anything is measured: the library is built, and the peers are installed on first use.
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join, resolve } from "node:path";

const BENCH = resolve(import.meta.dirname, "..");

const quietly = { cwd: BENCH, stdio: ["ignore", "ignore", "inherit"] };

export function prepare() {
  install();
  execFileSync("npm", ["run", "-s", "build"], { ...quietly, cwd: join(BENCH, "..") });
}

export function install() {
  if (!isOlder(join(BENCH, "node_modules/.package-lock.json"), join(BENCH, "package-lock.json"))) return;
  console.error("installing the peers ...");
  execFileSync("npm", ["ci", "--no-audit", "--no-fund"], quietly);
}

function isOlder(path, other) {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined || stat.mtimeMs < statSync(other).mtimeMs;
}
