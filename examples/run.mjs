// npm run example -- <name> [options]: the one way to start any of them.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";

const [name] = process.argv.splice(2, 1);
const program = (folder) => join(import.meta.dirname, folder, "run.mjs");
const names = readdirSync(import.meta.dirname).filter((folder) => existsSync(program(folder)));
if (!names.includes(name)) {
  console.error(`${name === undefined ? "which example?" : `there is no example "${name}"`}

usage: npm run example -- ${names.join(" | ")} [options]
       npm run example -- leader --help`);
  process.exit(2);
}
await import(program(name));
