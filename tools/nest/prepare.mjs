// Installs Nest on first use, puts the built library beside it as a package, and compiles the programs in apps/ for it.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";

const ROOT = resolve(import.meta.dirname, "../..");
const APPS = join(import.meta.dirname, "apps");

/** Nest's major version, and where it is installed. */
export const FOLDERS = { 11: join(ROOT, "tools/nest-11"), 12: import.meta.dirname };

const compilerOptions = {
  target: ts.ScriptTarget.ES2022,
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  lib: ["lib.es2024.d.ts", "lib.esnext.disposable.d.ts"],
  types: ["node"],
  strict: true,
  skipLibCheck: true,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
};

/** Where the programs are, ready to run. Not the sources: Node.js looks for packages from where a file is. */
export function prepare(version) {
  const home = FOLDERS[version];
  if (!existsSync(join(home, "node_modules/.package-lock.json"))) {
    console.error(`Installing Nest ${version} into ${home} (once) …`);
    const words = ["ci", "--no-audit", "--no-fund", "--loglevel=error"];
    execFileSync("npm", words, { cwd: home, stdio: ["ignore", "ignore", "inherit"] });
  }
  // A copy: by a link the library would look for Nest in its own folder, where there is none.
  const library = join(home, "node_modules/holdfast");
  rmSync(library, { recursive: true, force: true });
  mkdirSync(library);
  cpSync(join(ROOT, "package.json"), join(library, "package.json"));
  cpSync(join(ROOT, "dist"), join(library, "dist"), { recursive: true });
  const out = join(home, "out");
  mkdirSync(out, { recursive: true });
  for (const file of readdirSync(APPS)) compile(out, file, readFileSync(join(APPS, file), "utf8"));
  return out;
}

/** Beside the others, source and all. Answers the program's path. */
export function compile(out, file, source) {
  writeFileSync(join(out, file), source);
  const path = join(out, file.replace(/\.ts$/, ".js"));
  const options = {
    ...compilerOptions,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
  };
  writeFileSync(path, ts.transpileModule(source, { compilerOptions: options }).outputText);
  return path;
}

/** What the compiler says about all programs, with Nest's own types. node-cron is installed beside Nest 12 alone. */
export function complaints(out) {
  const installed = existsSync(join(out, "../node_modules/node-cron"));
  const needed = (file) => readFileSync(join(out, file), "utf8").includes('"node-cron"');
  const files = readdirSync(out).filter((file) => file.endsWith(".ts") && (installed || !needed(file)));
  const program = ts.createProgram(
    files.map((file) => join(out, file)),
    { ...compilerOptions, noEmit: true },
  );
  return ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    return `${file?.fileName ?? ""}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
}
