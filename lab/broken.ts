import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";
import { ROOT } from "./lib/results.js";

/** Ways to break the library on purpose, so that the lab can show that it would notice: edits of its sources. */
const BROKEN: Readonly<Record<string, readonly (readonly [file: string, from: string, to: string])[]>> = {
  /** Every grant has the same token. */
  tokens: [
    ["core/grant.ts", "return this.#fence.token + this.client.settings.tokenBase;", "return 1;"],
    ["core/hold.ts", "return this.#grant.fence.floor + this.#grant.client.settings.tokenBase;", "return 1;"],
  ],
  /** The deadline counts from the answer instead of the request. */
  deadline: [["core/client.ts", "call()), sentAt, tries };", "call()), sentAt: this.clock.now(), tries };"]],
};

/** The library, built file by file with something broken; below the project, so that it finds its client libraries. */
export function brokenLibrary(way: string): { readonly path: string; remove(): void } {
  const edits = Object.hasOwn(BROKEN, way) ? BROKEN[way] : undefined;
  if (edits === undefined) throw new Error(`there is no ${way}; choose from ${Object.keys(BROKEN).join(", ")}`);
  const path = mkdtempSync(join(ROOT, "node_modules", `.holdfast-broken-${way}-`));
  writeFileSync(join(path, "package.json"), '{ "type": "module" }');
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
  for (const file of readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".ts")) continue;
    let code = readFileSync(join(ROOT, "src", file), "utf8");
    for (const [, from, to] of edits.filter(([edited]) => edited === file)) {
      if (code.split(from).length !== 2) throw new Error(`"${from}" does not occur once in ${file}`);
      code = code.replace(from, () => to);
    }
    const target = join(path, `${file.slice(0, -3)}.js`);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, ts.transpileModule(code, { compilerOptions }).outputText);
  }
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}
