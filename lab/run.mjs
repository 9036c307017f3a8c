// npm run lab: builds the library, which the contenders use as it is published, and starts the lab.
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";

const here = import.meta.dirname;
execFileSync("npm", ["run", "-s", "build"], { cwd: join(here, ".."), stdio: ["ignore", "ignore", "inherit"] });
const words = ["--import", join(here, "lib/typescript.mjs"), join(here, "main.ts"), ...process.argv.slice(2)];
process.exitCode = spawnSync(process.execPath, words, { stdio: "inherit" }).status ?? 1;
