import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const SCRIPT = resolve(import.meta.dirname, "../../scripts/release.mjs");

let folder: string;
const write = (path: string, text: string): void => writeFileSync(join(folder, path), text);
const git = (...words: string[]): string => execFileSync("git", words, { cwd: folder, encoding: "utf8" });
const release = (...words: string[]) =>
  spawnSync(process.execPath, [SCRIPT, ...words], { cwd: folder, encoding: "utf8" });
const tags = (): string => git("tag").trim();

function commit(): void {
  git("add", "-A");
  git("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "all");
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "holdfast-release-"));
  const scripts = { test: "node -e 0", check: "node -e 0" };
  write("package.json", JSON.stringify({ name: "some", version: "1.2.3", scripts }));
  write("package-lock.json", JSON.stringify({ name: "some", version: "1.2.3", lockfileVersion: 3, packages: {} }));
  write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - 2026-11-17\n");
  git("init", "-q");
  git("config", "user.name", "a");
  git("config", "user.email", "a@example.com");
  commit();
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a clean tree is checked, tested and tagged once", () => {
  expect(release("--dry-run")).toMatchObject({ status: 0, stdout: "v1.2.3 could be released\n" });
  expect(tags()).toBe("");
  const done = release();
  expect(done.stderr).not.toContain("not clean");
  expect({ status: done.status, tags: tags() }).toEqual({ status: 0, tags: "v1.2.3" });
  const again = release();
  expect(again.status).toBe(1);
  expect(again.stderr).toContain("the tag v1.2.3 is there already");
});

test.each([
  ["a changed file", () => write("CHANGELOG.md", "# Changelog\n\n## 1.2.3\n\n- more\n"), "the tree is not clean"],
  ["a new file", () => write("new.txt", "x"), "the tree is not clean"],
  [
    "no section of the version",
    () => {
      write("CHANGELOG.md", "# Changelog\n\n## 11.2.3\n");
      commit();
    },
    'no section "## 1.2.3"',
  ],
  [
    "a section without its date",
    () => {
      write("CHANGELOG.md", "# Changelog\n\n## 1.2.3 - unreleased\n");
      commit();
    },
    "calls 1.2.3 unreleased",
  ],
  [
    "a lockfile of another version",
    () => {
      write("package-lock.json", JSON.stringify({ version: "1.2.2" }));
      commit();
    },
    "package-lock.json has another version",
  ],
])("%s is refused, and nothing is tagged", (_, make, message) => {
  make();
  const { status, stderr } = release();
  expect(status).toBe(1);
  expect(stderr).toContain(message);
  expect(tags()).toBe("");
});

test("tests that leave something behind are noticed before the tag", () => {
  const scripts = { test: `node -e "require('fs').writeFileSync('left', '')"`, check: "node -e 0" };
  write("package.json", JSON.stringify({ name: "some", version: "1.2.3", scripts }));
  commit();
  const { status, stderr } = release();
  expect({ status, tags: tags() }).toEqual({ status: 1, tags: "" });
  expect(stderr).toContain("not clean any more");
});
