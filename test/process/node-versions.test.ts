import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");

// Another Node.js from npm, which has SQLite inside: no library is needed there.
test("the conformance suite passes through node:sqlite on Node.js 24", { timeout: 240_000 }, async () => {
  const words = ["-y", "-p", "node@24", "node", "node_modules/vitest/vitest.mjs", "run", "--no-color"];
  const files = ["test/conformance/sqlite.test.ts", "test/unit/sqlite"];
  const { stdout } = await promisify(execFile)("npx", [...words, "--reporter=verbose", ...files], {
    cwd: ROOT,
    timeout: 220_000,
    maxBuffer: 16 * 1024 * 1024,
    env: { ...process.env, NO_COLOR: "1" },
  }).catch((error: { stdout?: string; message: string }) => {
    throw new Error(`${error.message}\n${error.stdout?.slice(-4000)}`);
  });
  expect(stdout).toContain("sqlite through node:sqlite, in real time");
  expect(stdout).toMatch(/Tests {2}\d+ passed \(\d+\)/);
});
