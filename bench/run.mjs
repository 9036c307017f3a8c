// npm run bench -- <name>: builds the library, installs the peers on first use, runs bench/<name>.mjs.
import { execFileSync } from "node:child_process";
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";

const here = import.meta.dirname;
const names = readdirSync(here)
  .filter((file) => file.endsWith(".mjs") && file !== "run.mjs")
  .map((file) => file.slice(0, -4));
const name = process.argv[2];
if (!names.includes(name)) {
  console.error(`usage: npm run bench -- ${names.join(" | ")}`);
  process.exit(2);
}
const quietly = { cwd: here, stdio: ["ignore", "ignore", "inherit"] };
if (isOlder(join(here, "node_modules/.package-lock.json"), join(here, "package-lock.json"))) {
  console.error("installing the peers ...");
  execFileSync("npm", ["ci", "--no-audit", "--no-fund"], quietly);
}
execFileSync("npm", ["run", "-s", "build"], { ...quietly, cwd: join(here, "..") });
const node = ["--expose-gc", join(here, `${name}.mjs`), ...process.argv.slice(3)];
execFileSync(process.execPath, node, { stdio: "inherit" });

function isOlder(path, other) {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat === undefined || stat.mtimeMs < statSync(other).mtimeMs;
}
