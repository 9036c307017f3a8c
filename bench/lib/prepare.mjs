// Before anything is measured: the library is built, and the peers are installed on first use.
import { execFileSync } from "node:child_process";
import { statSync } from "node:fs";
import { join, resolve } from "node:path";

const BENCH = resolve(import.meta.dirname, "..");

export function prepare() {
  const quietly = { cwd: BENCH, stdio: ["ignore", "ignore", "inherit"] };
  if (isOlder(join(BENCH, "node_modules/.package-lock.json"), join(BENCH, "package-lock.json"))) {
    console.error("installing the peers ...");
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], quietly);
  }
  execFileSync("npm", ["run", "-s", "build"], { ...quietly, cwd: join(BENCH, "..") });
}

function isOlder(path, other) {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined || stat.mtimeMs < statSync(other).mtimeMs;
}
