// Makes dist, which is what is packed and what the tests of whole processes run: every exported module and the command
// line, bundled so that shared code stands once, minified, with maps that carry the sources (--enable-source-maps shows
// them in stack traces). The declarations are rolled up in the same way, with the comments that editors show.
//
//   node scripts/build.mjs
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative, sep } from "node:path";
import { rolldown } from "rolldown";
import { rollup } from "rollup";
import { dts } from "rollup-plugin-dts";

const ROOT = join(import.meta.dirname, "..");
const DIST = join(ROOT, "dist");
const TYPES = mkdtempSync(join(tmpdir(), "holdfast-types-"));
process.once("exit", () => rmSync(TYPES, { recursive: true }));

const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const exported = Object.values(exports).flatMap(({ default: path }) =>
  path === undefined ? [] : [path.slice("./dist/".length, -".js".length)],
);
// Two programs: the command line, and the process that holds a lock for a script and is found by its path.
const programs = ["cli/main", "cli/holder"];

rmSync(DIST, { recursive: true, force: true });
const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
execFileSync(process.execPath, [tsc, "-p", "tsconfig.build.json", "--outDir", TYPES], { cwd: ROOT, stdio: "inherit" });

// Whatever is not ours is loaded from where the user has it, when it is needed.
const NOT_OURS = /^[^./]/;
// Errors tell their name by their class, and a stack trace without maps still says whose method it was.
const keepNames = { class: true, function: false };

const code = await rolldown({
  input: Object.fromEntries([...exported, ...programs].map((name) => [name, join(ROOT, "src", `${name}.ts`)])),
  platform: "node",
  external: NOT_OURS,
  onLog(level, { message }) {
    throw new Error(`${level}: ${message}`);
  },
  transform: { target: "node20" },
});
const { output } = await code.write({
  dir: DIST,
  format: "esm",
  sourcemap: true,
  comments: false,
  minify: { mangle: { keepNames }, compress: { keepNames } },
  entryFileNames: "[name].js",
  // The command line's own parts stay in its folder: one of them looks for a program beside it.
  chunkFileNames: ({ moduleIds }) =>
    `${moduleIds.length > 0 && moduleIds.every((id) => sourceOf(id).startsWith("cli/")) ? "cli" : "parts"}/[name].js`,
});
eachEngineAlone(output);

const types = await rollup({
  input: Object.fromEntries(exported.map((name) => [name, join(TYPES, `${name}.d.ts`)])),
  external: NOT_OURS,
  // It would say which parameters' types nobody can import by name. That is so on purpose.
  logLevel: "silent",
  plugins: [dts()],
});
await types.write({
  dir: DIST,
  entryFileNames: "[name].d.ts",
  chunkFileNames: ({ name }) => `types/${name.replace(/\.d$/, "")}.d.ts`,
  plugins: [
    {
      name: "tabs",
      renderChunk: (text) => text.replaceAll(/^(?: {4})+/gm, (spaces) => "\t".repeat(spaces.length / 4)),
    },
  ],
});

function sourceOf(id) {
  return relative(join(ROOT, "src"), id).replaceAll(sep, "/");
}

/** A bundler may put shared code where it likes: importing one engine must not load another. */
function eachEngineAlone(chunks) {
  const byFile = new Map(chunks.filter(({ type }) => type === "chunk").map((chunk) => [chunk.fileName, chunk]));
  for (const entry of exported) {
    const files = new Set([`${entry}.js`]);
    // A set that grows while it is walked is walked to its new end.
    for (const file of files) for (const next of byFile.get(file)?.imports ?? []) files.add(next);
    const sources = [...files].flatMap((file) => byFile.get(file)?.moduleIds ?? []).map(sourceOf);
    // What the testing kit compares every engine with is the memory engine.
    const own = entry === "testing/index" ? "engines/memory/" : entry.replace(/[^/]+$/, "");
    const foreign = sources.find((path) => path.startsWith("engines/") && !path.startsWith(own));
    if (foreign !== undefined) throw new Error(`${entry} loads ${foreign}`);
  }
}
