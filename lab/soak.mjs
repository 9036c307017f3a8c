// npm run soak: builds the library, which the processes use as it is published, and starts the soak.
import { execFileSync, spawn } from "node:child_process";
import { join } from "node:path";

const here = import.meta.dirname;
execFileSync("npm", ["run", "-s", "build"], { cwd: join(here, ".."), stdio: ["ignore", "ignore", "inherit"] });
const words = ["--import", join(here, "lib/typescript.mjs"), join(here, "soak/main.ts"), ...process.argv.slice(2)];
const soak = spawn(process.execPath, words, { stdio: "inherit" });
// Ctrl-C reaches both; the soak cleans up, and this one waits for it.
process.on("SIGINT", () => {});
process.on("SIGTERM", () => soak.kill("SIGTERM"));
soak.on("exit", (code) => (process.exitCode = code ?? 1));
