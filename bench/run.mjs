// npm run bench -- <name>: builds the library, installs the peers on first use, runs bench/<name>.mjs.
import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { prepare } from "./lib/prepare.mjs";

const here = import.meta.dirname;
const names = readdirSync(here)
  .filter((file) => file.endsWith(".mjs") && file !== "run.mjs")
  .map((file) => file.slice(0, -4));
const name = process.argv[2];
if (!names.includes(name)) {
  console.error(`usage: npm run bench -- ${names.join(" | ")}`);
  process.exit(2);
}
prepare();
const node = ["--expose-gc", join(here, `${name}.mjs`), ...process.argv.slice(3)];
execFileSync(process.execPath, node, { stdio: "inherit" });
