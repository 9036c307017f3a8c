// Installs this folder's own packages, on first use.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const HOME = import.meta.dirname;

export function install() {
  if (existsSync(join(HOME, "node_modules/.package-lock.json"))) return;
  console.error("Installing VitePress into tools/site (once) …");
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: HOME, stdio: "inherit" });
}
