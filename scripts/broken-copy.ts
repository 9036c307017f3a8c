import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";

/** In a compiled file of the library this text, which must occur exactly once, becomes that. */
export type Edit = readonly [file: string, from: string, to: string];

const SOURCES = join(import.meta.dirname, "../src");
let compiled: ReadonlyMap<string, string> | null = null;

/**
 * The library with something broken on purpose, to show that somebody would notice. Compiled into this folder.
 */
export function writeBrokenCopy(folder: string, edits: readonly Edit[]): void {
  compiled ??= compileSources(SOURCES);
  const broken = new Map(compiled);
  for (const [file, from, to] of edits) {
    const code = broken.get(file) ?? "";
    if (code.split(from).length !== 2) throw new Error(`"${from}" does not occur once in ${file}`);
    broken.set(
      file,
      code.replace(from, () => to),
    );
  }
  writeCompiled(folder, broken);
}

export function writeCompiled(folder: string, files: ReadonlyMap<string, string>): void {
  for (const [file, code] of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), code);
  }
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
}

/** What the build makes of each source, without declarations and without a check of types: a fifth of the time. */
export function compileSources(folder: string): ReadonlyMap<string, string> {
  const { ESNext: module } = ts.ModuleKind;
  const compilerOptions = { module, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  return new Map(
    files.map((file) => {
      const { outputText } = ts.transpileModule(readFileSync(join(folder, file), "utf8"), { compilerOptions });
      return [`${file.slice(0, -3)}.js`, outputText];
    }),
  );
}
