// npm run compare: builds the library, installs the peers on first use, measures, and writes the page anew.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { prepare } from "../bench/lib/prepare.mjs";

prepare();
const here = import.meta.dirname;
const node = ["--import", join(here, "lib/typescript.mjs"), join(here, "compare/run.mjs")];
const { status } = spawnSync(process.execPath, [...node, ...process.argv.slice(2)], { stdio: "inherit" });
process.exit(status ?? 1);
