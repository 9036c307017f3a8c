// What `typescript.mjs` registers: "./x.js" also means ./x.ts, and types are taken out on the way in.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

export async function resolve(specifier, context, next) {
  if (specifier.startsWith(".") && specifier.endsWith(".js")) {
    const url = new URL(`${specifier.slice(0, -3)}.ts`, context.parentURL);
    if (existsSync(fileURLToPath(url))) return { url: url.href, format: "module", shortCircuit: true };
  }
  return next(specifier, context);
}

export async function load(url, context, next) {
  if (!url.endsWith(".ts")) return next(url, context);
  const { ESNext, ES2022 } = { ESNext: ts.ModuleKind.ESNext, ES2022: ts.ScriptTarget.ES2022 };
  const compilerOptions = { module: ESNext, target: ES2022, inlineSourceMap: true, verbatimModuleSyntax: true };
  const { outputText } = ts.transpileModule(readFileSync(fileURLToPath(url), "utf8"), {
    compilerOptions,
    fileName: fileURLToPath(url),
  });
  return { source: outputText, format: "module", shortCircuit: true };
}
