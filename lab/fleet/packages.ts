// The versions of the library that a fleet is made of, each a built package in a folder of its own.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { compileSources, writeCompiled } from "../../scripts/broken-copy.js";
import { LAYOUT_VERSIONS, type LayoutVersions, type VersionedStore } from "../../src/engine-kit/layout-version.js";

const ROOT = resolve(import.meta.dirname, "../..");
/** Below node_modules, so that the packages find the client libraries, and git sees nothing of them. */
const CACHE = join(ROOT, "node_modules/.cache/holdfast-fleet");
const VERSIONS = "src/engine-kit/layout-version.ts";

/** `dist` of a package. */
export type Package = { readonly title: string; readonly dist: string };

function git(...words: readonly string[]): string {
  // Also where the clone was made by another user, as in containers.
  return execFileSync("git", ["-c", "safe.directory=*", ...words], {
    cwd: ROOT,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
}

export function present(): Package {
  const dist = join(ROOT, "dist");
  if (!existsSync(dist)) throw new Error("there is no dist of the present tree: run npm run build");
  return { title: "present tree", dist };
}

/**
 * The commit that last changed which layouts this library speaks: the oldest that speaks all of them as the present tree does. In a
 * clone without the history that is the oldest commit there is, which is said aloud: the two versions may then be the same.
 */
export function oldestOfThisLayout(): string {
  try {
    const commit = git("log", "-1", "--format=%H", "-G", "highest: [0-9]", "--", VERSIONS);
    if (git("rev-parse", "--is-shallow-repository") === "true")
      console.warn(`This clone is shallow, so the older version is ${commit}. For the real one: git fetch --unshallow`);
    return commit;
  } catch (cause) {
    throw new Error("The fleet of two versions needs a clone of the repository, with its history.", { cause });
  }
}

/** The last commit before stores had a layout version: 0.1.0, as it was then. */
export function unversioned(): string {
  return `${git("log", "-1", "--diff-filter=A", "--format=%H", "--", VERSIONS)}^`;
}

/** The package of a commit, compiled once. */
export function packageOf(commit: string): Package {
  const hash = git("rev-parse", "--verify", `${commit}^{commit}`);
  const title = `${hash.slice(0, 9)} of ${git("show", "-s", "--format=%cs", hash)}`;
  const dist = join(CACHE, hash);
  if (existsSync(dist)) return { title, dist };
  const making = join(CACHE, `${hash}.${process.pid}`);
  mkdirSync(making, { recursive: true });
  try {
    const sources = execFileSync("git", ["-c", "safe.directory=*", "archive", hash, "src"], {
      cwd: ROOT,
      maxBuffer: 2 ** 28,
    });
    execFileSync("tar", ["-x", "-C", making], { input: sources });
    writeCompiled(join(making, "dist"), compileSources(join(making, "src")));
    // At once, so that a half of it is never found.
    if (!existsSync(dist)) renameSync(join(making, "dist"), dist);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return { title, dist };
}

/** For the packages of one run; whoever makes it removes it. */
export function folderForPackages(): string {
  mkdirSync(CACHE, { recursive: true });
  return mkdtempSync(join(CACHE, "run-"));
}

/** One more migration for stores that have them: what a next version might add. */
const MIGRATION = {
  postgres: (at: number) => `CREATE TABLE holdfast.invented${at} (number integer);\n`,
  mysql: (at: number) => `CREATE TABLE IF NOT EXISTS holdfast.invented${at} (number INT)\n//\n`,
  sqlite: (at: number) =>
    `CREATE TABLE invented${at} (number INTEGER) STRICT; ALTER TABLE claim ADD COLUMN invented${at} TEXT;`,
} as const;
const MIGRATES = { postgres: "migrate", mysql: "migrate", sqlite: "schema" } as const;

/**
 * The present library as a version might be that comes `steps` layouts later: it speaks the layout that it writes and the one before,
 * and takes data along by a migration of its own where the store has migrations.
 */
export function invented(steps: number, folder: string): Package {
  const dist = join(folder, `later-${steps}`, "dist");
  cpSync(present().dist, dist, { recursive: true });
  const edit = (file: string, change: (text: string) => string): void => {
    const before = readFileSync(join(dist, file), "utf8");
    const after = change(before);
    if (after === before) throw new Error(`${file} is not as expected`);
    writeFileSync(join(dist, file), after);
  };
  const later = Object.keys(LAYOUT_VERSIONS).map((kind) => `${kind}: ${versionsLater(kind as VersionedStore, steps)}`);
  edit("engine-kit/layout-version.js", (text) =>
    text.replace(/(LAYOUT_VERSIONS = )\{[^;]*\};/, (_, start: string) => `${start}{ ${later.join(", ")} };`),
  );
  for (const [kind, file] of Object.entries(MIGRATES)) {
    const more = Array.from({ length: steps }, (_, at) =>
      JSON.stringify(MIGRATION[kind as keyof typeof MIGRATION](at)),
    );
    const found = /import \{ MIGRATIONS \} from "\.\/scripts\.generated\.js";/;
    const ours = `import { MIGRATIONS as BEFORE } from "./scripts.generated.js";\nconst MIGRATIONS = [...BEFORE, ${more.join(", ")}];`;
    edit(`engines/${kind}/${file}.js`, (text) => text.replace(found, () => ours));
  }
  return { title: `${steps} layout${steps === 1 ? "" : "s"} later`, dist };
}

/** The present library with something broken, to show that the fleet would notice: here it keeps its locks elsewhere. */
export function elsewhere(folder: string): Package {
  const dist = join(folder, "elsewhere", "dist");
  cpSync(present().dist, dist, { recursive: true });
  const file = join(dist, "engines/redis/keys.js");
  const before = readFileSync(file, "utf8");
  const after = before.replace("}lock:`", "}elsewhere:`");
  if (after === before) throw new Error(`${file} is not as expected`);
  writeFileSync(file, after);
  return { title: "locks elsewhere", dist };
}

/** What a version speaks that comes so many layouts later. */
function versionsLater(kind: VersionedStore, steps: number): string {
  const { highest }: LayoutVersions = LAYOUT_VERSIONS[kind];
  return JSON.stringify({ lowest: highest + steps - 1, highest: highest + steps });
}
