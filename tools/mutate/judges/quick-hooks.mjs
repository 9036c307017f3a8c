// Loads the copy of the tree in which quick.mjs makes its mutants. A module that was asked for with `?mutant=<n>` asks for
// the modules of its engine with the same words, so that each mutant has a set of its own; all others are loaded once.
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const OWN = /\/(?:src\/engines\/(?:redis|postgres|mysql)|src\/sql|test\/virtual)\//;
const COMPILER_OPTIONS = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
const transpiled = new Map();

export async function resolve(specifier, context, next) {
  if (!specifier.startsWith(".") || !specifier.endsWith(".js")) return next(specifier, context);
  const url = new URL(`${specifier.slice(0, -3)}.ts`, context.parentURL);
  if (!existsSync(fileURLToPath(url))) return next(specifier, context);
  url.search = OWN.test(url.pathname) ? new URL(context.parentURL).search : "";
  return { url: url.href, format: "module", shortCircuit: true };
}

export async function load(url, context, next) {
  const { pathname } = new URL(url);
  if (!pathname.endsWith(".ts")) return next(url, context);
  let text = readFileSync(fileURLToPath(url), "utf8");
  // One server for all mutants.
  if (pathname.includes("/test/virtual/"))
    text = text.replace(/\bawait (start(?:Redis|Postgres|Mariadb))\(/g, "await globalThis.sharedServer($1, ");
  const key = createHash("sha1").update(text).digest("hex");
  if (!transpiled.has(key))
    transpiled.set(key, ts.transpileModule(text, { compilerOptions: COMPILER_OPTIONS, fileName: pathname }).outputText);
  return { source: transpiled.get(key), format: "module", shortCircuit: true };
}
