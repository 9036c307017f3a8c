// How long the command line takes to start, beside Node.js itself and flock(1): whole processes, interleaved.
//
//   npm run bench -- cli [rounds]
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { interleave, median, ratio, table } from "./lib/measure.mjs";

const rounds = Number(process.argv[2] ?? 30);
const main = join(import.meta.dirname, "../dist/cli/main.js");
const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
const env = { ...process.env, HOLDFAST_URL: `sqlite:${join(folder, "locks.db")}` };

function timed(program, ...args) {
  return async () => {
    const from = performance.now();
    const { status, stderr } = spawnSync(program, args, { env, encoding: "utf8" });
    if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${status} ${stderr}`);
    return performance.now() - from;
  };
}

const node = process.execPath;
const figures = await interleave(
  {
    "node -e 0": timed(node, "-e", "0"),
    "holdfast --version": timed(node, main, "--version"),
    "holdfast run NAME -- true (embedded)": timed(node, main, "run", "bench", "--", "true"),
    "flock FILE true": timed("flock", join(folder, "file"), "true"),
  },
  rounds,
);
const base = figures["node -e 0"];
table(
  `Whole processes, ${rounds} interleaved rounds`,
  ["", "median ms", "against node -e 0"],
  Object.entries(figures).map(([name, all]) => [name, median(all).toFixed(1), `${ratio(all, base).toFixed(2)} ×`]),
);
rmSync(folder, { recursive: true });
