// npm run release: refuses what must not be released, runs the checks and the tests, and tags the commit. It neither pushes nor
// publishes: pushing the tag does (.github/workflows/publish.yml). With --dry-run it ends before the checks.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const git = (...words) => execFileSync("git", words, { encoding: "utf8" }).trim();
const json = (path) => JSON.parse(readFileSync(path, "utf8"));

/** What stands against a release of what is here. */
function* objections(version, tag) {
  const changed = git("status", "--porcelain");
  if (changed !== "") yield `the tree is not clean:\n${changed}`;
  if (json("package-lock.json").version !== version) yield `package-lock.json has another version: run npm install`;
  const changes = readFileSync("CHANGELOG.md", "utf8");
  const section = new RegExp(`^## \\[?${version.replaceAll(".", "\\.")}\\]?( .*)?$`, "m").exec(changes);
  if (section === null) yield `CHANGELOG.md has no section "## ${version}"`;
  else if (/unreleased/i.test(section[0])) yield `CHANGELOG.md calls ${version} unreleased: give it its date`;
  if (git("tag", "--list", tag) !== "") yield `the tag ${tag} is there already: raise the version in package.json`;
}

process.chdir(git("rev-parse", "--show-toplevel"));
const { version } = json("package.json");
const tag = `v${version}`;
const found = [...objections(version, tag)];
if (found.length > 0) {
  for (const objection of found) console.error(objection);
  process.exit(1);
}
if (process.argv.includes("--dry-run")) {
  console.log(`${tag} could be released`);
  process.exit(0);
}
for (const words of [["ci"], ["test"], ["run", "check"], ["pack", "--dry-run"]])
  execFileSync("npm", words, { stdio: "inherit" });
// The tests may have written something, and somebody else may have worked here meanwhile.
const after = git("status", "--porcelain");
if (after !== "") {
  console.error(`the tree is not clean any more:\n${after}`);
  process.exit(1);
}
git("tag", "--annotate", tag, "--message", `Holdfast ${version}`);
console.log(`${tag} is tagged. To publish it: git push origin ${tag}`);
