import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");

/** Every `js` block of the README and the docs, with the line it starts at. */
function blocks(): [string, string][] {
  const docs = readdirSync(resolve(ROOT, "docs"), { recursive: true, encoding: "utf8" });
  const pages = docs.filter((path) => path.endsWith(".md")).map((path) => `docs/${path}`);
  return ["README.md", ...pages].flatMap((path) => {
    const text = readFileSync(resolve(ROOT, path), "utf8");
    return [...text.matchAll(/^```js\n(.*?)^```/gms)].map((block): [string, string] => [
      `${path}:${text.slice(0, block.index).split("\n").length}`,
      block[1] ?? "",
    ]);
  });
}

// Run as a user would: plain JavaScript on this Node, importing the built package by its name.
test.each(blocks())("the example at %s runs", async (_place, code) => {
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", code], {
    cwd: ROOT,
    timeout: 15_000,
  });
  await expect(run).resolves.toMatchObject({ stderr: "" });
});
