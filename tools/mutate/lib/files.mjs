// Which files there are, and which of them are asked for.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

const git = (root, ...args) => {
  const options = { cwd: root, encoding: "utf8", maxBuffer: 2 ** 26, stdio: ["ignore", "pipe", "pipe"] };
  return execFileSync("git", args, options)
    .split("\n")
    .filter((line) => line !== "");
};

/** `*` within a folder, `**` over folders, `{a,b}`. */
export function globbed(pattern) {
  const parts = pattern.split(/(\*\*\/|\*\*|\*|\?|\{[^}]*\})/).map((part, at) => {
    if (at % 2 === 0) return part.replace(/[.+^$()|[\]\\]/g, "\\$&");
    if (part === "**/") return "(?:.*/)?";
    if (part === "**") return ".*";
    if (part === "?") return "[^/]";
    if (part === "*") return "[^/]*";
    return `(?:${part
      .slice(1, -1)
      .split(",")
      .map((one) => one.replace(/[.+^$()|[\]\\]/g, "\\$&"))
      .join("|")})`;
  });
  const found = new RegExp(`^${parts.join("")}$`);
  return (file) => found.test(file);
}

export function filesOf(root) {
  return git(root, "ls-files", "-co", "--exclude-standard")
    .filter((file) => existsSync(join(root, file)))
    .toSorted();
}

/** What differs from this commit, and what git does not know yet. Throws when there is no such commit. */
export function changedSince(root, base) {
  return new Set([
    ...git(root, "diff", "--name-only", base, "--"),
    ...git(root, "ls-files", "-o", "--exclude-standard"),
  ]);
}

/** Those that the patterns name, but for generated ones. */
export function matching(files, patterns) {
  const tests = patterns.map(globbed);
  return files.filter((file) => !file.endsWith(".generated.ts") && tests.some((test) => test(file)));
}
