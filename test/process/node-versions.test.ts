import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");
const here = Number.parseInt(process.versions.node, 10);

// Each comes from npm. The one that runs these tests has run the same files as a part of them.
const others = [20, 22, 24, 26].filter((major) => major !== here);

test.concurrent.each(others)("memory and SQLite conform on Node.js %i", { timeout: 400_000 }, async (major) => {
  const words = ["-y", "-p", `node@${major}`, "node", "node_modules/vitest/vitest.mjs", "run", "--no-color"];
  const files = ["test/conformance/memory", "test/conformance/sqlite", "test/unit/sqlite"];
  const { stdout } = await promisify(execFile)("npx", [...words, "--reporter=verbose", ...files], {
    cwd: ROOT,
    timeout: 380_000,
    maxBuffer: 16 * 1024 * 1024,
    env: { ...process.env, NO_COLOR: "1" },
  }).catch((error: { stdout?: string; message: string }) => {
    throw new Error(`${error.message}\n${error.stdout?.slice(-4000)}`);
  });
  // From 22 on SQLite is inside Node.js: no library is needed there.
  expect(stdout).toContain(`sqlite through ${major === 20 ? "libsql" : "node:sqlite"}, in real time`);
  expect(stdout).toContain("memory, in real time");
  expect(stdout).toMatch(/Tests {2}\d+ passed \(\d+\)/);
});
