// Makes dist, which is what is packed and what the tests of whole processes run: one file for each source, as the compiler
// writes it. Not bundled and not minified, so that a stack trace or a debugger shows code that a person can read, in a file
// of the same name as its source. An import reads more files for that; test/process/package.test.ts prints and bounds the price.
//
//   node scripts/build.mjs
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..");

rmSync(join(ROOT, "dist"), { recursive: true, force: true });
const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
// The page of the live view runs in a browser: it is compiled for that.
for (const project of ["tsconfig.build.json", "src/live/page/tsconfig.json"]) {
  execFileSync(process.execPath, [tsc, "-p", project], { cwd: ROOT, stdio: "inherit" });
}
