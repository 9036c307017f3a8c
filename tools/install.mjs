// Installs the packages of one of these folders by its lockfile, on first use.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

export function install(folder, what) {
  const home = join(import.meta.dirname, folder);
  if (existsSync(join(home, "node_modules/.package-lock.json"))) return;
  console.error(`Installing ${what} into tools/${folder} (once) …`);
  execFileSync("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], {
    cwd: home,
    stdio: ["ignore", "ignore", "inherit"],
  });
}
