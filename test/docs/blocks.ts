import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";

export const ROOT = resolve(import.meta.dirname, "../..");

/** A code block of a page that a reader may copy. */
export type Block = {
  /** Page and line, as an editor opens it. */
  readonly place: string;
  readonly page: string;
  readonly language: "js" | "ts" | "sh";
  /** With what is given before it: a comment `<!-- given … -->` right above the block, unseen on the page. */
  readonly code: string;
};

/** Written from the sources, not by hand: a script compares it. */
const GENERATED = "docs/reference/api.md";

export function pages(): string[] {
  const docs = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" }).map((path) => `docs/${path}`);
  const top = readdirSync(ROOT).filter((path) => path.startsWith("README"));
  return [...top, ...docs.filter((path) => path !== GENERATED).toSorted()].filter((path) => path.endsWith(".md"));
}

export function blocksOf(page: string): Block[] {
  const text = readFileSync(join(ROOT, page), "utf8");
  const found = text.matchAll(/(?:^<!-- given\n(.*?)^-->\n+)?^```(js|ts|sh)\n(.*?)^```/gms);
  return [...found].map(({ 0: whole, 1: given = "", 2: language, 3: code = "", index }) => {
    const line = text.slice(0, index + whole.indexOf("```")).split("\n").length;
    return { place: `${page}:${line}`, page, language: language as Block["language"], code: given + code };
  });
}

/** A page in another language: its blocks are those of the English page, as pages.test.ts checks, and need not run twice. */
const isTranslation = (page: string): boolean => page.startsWith("docs/zh-CN/");

export const allBlocks = (): Block[] =>
  pages()
    .filter((page) => !isTranslation(page))
    .flatMap(blocksOf);

const configuration = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(ROOT, "tsconfig.json"), (path) => ts.sys.readFile(path)).config,
  ts.sys,
  ROOT,
).options;

/** What the compiler has to say about these blocks, each as a file of a program that uses the built package. */
export function complaints(blocks: readonly Block[]): string[] {
  // Plain JavaScript names no types: there only wrong names and wrong calls are found.
  const loose = { strict: false, noUncheckedIndexedAccess: false, exactOptionalPropertyTypes: false };
  const plain = { ...configuration, ...loose, allowJs: true, checkJs: true };
  return [...check(blocks, "ts", configuration), ...check(blocks, "js", plain)];
}

function check(blocks: readonly Block[], language: "js" | "ts", settings: ts.CompilerOptions): string[] {
  const options = { ...settings, skipLibCheck: true };
  const chosen = blocks.filter((block) => block.language === language);
  const sources = new Map(chosen.map((block) => [join(ROOT, `${block.place.replace(":", ".")}.${language}`), block]));
  const disk = ts.createCompilerHost(options);
  const host: ts.CompilerHost = {
    ...disk,
    fileExists: (path) => sources.has(path) || disk.fileExists(path),
    readFile: (path) => sources.get(path)?.code ?? disk.readFile(path),
    getSourceFile(path, version, ...rest) {
      const block = sources.get(path);
      // A block without an import is a module all the same: it may await.
      return block === undefined
        ? disk.getSourceFile(path, version, ...rest)
        : ts.createSourceFile(path, `${block.code}\nexport {};`, version, true);
    },
  };
  const program = ts.createProgram([...sources.keys()], options, host);
  return ts.getPreEmitDiagnostics(program).map(({ file, messageText }) => {
    const place = file === undefined ? "" : (sources.get(file.fileName)?.place ?? file.fileName);
    return `${place}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
}

/** The block as plain JavaScript for this Node, which does not know `await using`. */
export function lowered({ language, code }: Block): string {
  if (language === "js") return code;
  const compilerOptions = { ...configuration, module: ts.ModuleKind.ESNext, declaration: false, noEmit: false };
  return ts.transpileModule(`${code}\nexport {};`, { compilerOptions }).outputText;
}
