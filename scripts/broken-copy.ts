import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";

/** In a compiled file of the library this text, which must occur exactly once, becomes that. */
export type Edit = readonly [file: string, from: string, to: string];

const SOURCES = join(import.meta.dirname, "../src");
const compiled = new Map<string, string>();

/**
 * The library with something broken on purpose, to show that somebody would notice. Compiled into this folder.
 */
export function writeBrokenCopy(folder: string, edits: readonly Edit[]): void {
  if (compiled.size === 0) compile();
  const broken = new Map(compiled);
  for (const [file, from, to] of edits) {
    const code = broken.get(file) ?? "";
    if (code.split(from).length !== 2) throw new Error(`"${from}" does not occur once in ${file}`);
    broken.set(
      file,
      code.replace(from, () => to),
    );
  }
  for (const [file, code] of broken) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), code);
  }
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
}

function compile(): void {
  const { ESNext: module } = ts.ModuleKind;
  const compilerOptions = { module, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
  for (const file of readdirSync(SOURCES, { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    const { outputText } = ts.transpileModule(readFileSync(join(SOURCES, file), "utf8"), { compilerOptions });
    compiled.set(`${file.slice(0, -3)}.js`, outputText);
  }
}
