// Writes docs/reference/api.md from the comments and types of everything that the package exports. With --check nothing is
// written: exit code 1 when the page is not what the sources say.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import ts from "typescript";

const ROOT = join(import.meta.dirname, "..");
const TARGET = join(ROOT, "docs/reference/api.md");

const { exports } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));
const entries = Object.entries(exports).flatMap(([path, { types } = {}]) =>
  types === undefined
    ? []
    : [[`holdfast${path.slice(1)}`, join(ROOT, types.replace("./dist/", "src/").replace(/\.d\.ts$/, ".ts"))]],
);

const { options } = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(ROOT, "tsconfig.json"), (path) => ts.sys.readFile(path)).config,
  ts.sys,
  ROOT,
);
const program = ts.createProgram(
  entries.map(([, file]) => file),
  options,
);
const checker = program.getTypeChecker();
const FLAGS = ts.TypeFormatFlags.NoTruncation;

const isInternal = (symbol) => symbol.getJsDocTags().some((tag) => tag.name === "internal");
const inTable = (text) => text.replaceAll("|", "\\|").replace(/\s+/g, " ").trim();
const code = (text) => `\`${text.replace(/\s+/g, " ").trim()}\``;

/** The comment as it stands; its own headings would break the page's. */
const comment = (symbol) => ts.displayPartsToString(symbol.getDocumentationComment(checker)).trim();

/** The comment of a member on one line; an example in it stays in the sources. */
const remark = (symbol) => inTable(comment(symbol).replace(/```.*?```/gs, ""));

function parameters(signature, node) {
  return signature.parameters.map((parameter) => {
    const { valueDeclaration: declared } = parameter;
    const rest = declared?.dotDotDotToken ? "..." : "";
    const optional = declared && checker.isOptionalParameter(declared) ? "?" : "";
    const name = declared && ts.isIdentifier(declared.name) ? parameter.name : "options";
    const written = declared?.type?.getText();
    return `${rest}${name}${optional}: ${written ?? checker.typeToString(checker.getTypeOfSymbolAtLocation(parameter, node), node, FLAGS)}`;
  });
}

function callable(name, signature, node) {
  const generic = signature.typeParameters?.map((type) => {
    const [declared] = type.symbol.declarations ?? [];
    return declared?.getText() ?? type.symbol.name;
  });
  const returned =
    signature.declaration?.type?.getText() ?? checker.typeToString(signature.getReturnType(), node, FLAGS);
  return `${name}${generic ? `<${generic.join(", ")}>` : ""}(${parameters(signature, node).join(", ")}): ${returned}`;
}

function memberName(symbol) {
  const [declared] = symbol.declarations ?? [];
  return declared?.name?.getText() ?? symbol.name;
}

function memberText(symbol, node) {
  const type = checker.getTypeOfSymbolAtLocation(symbol, node);
  const name = memberName(symbol);
  if (symbol.flags & ts.SymbolFlags.Method) return type.getCallSignatures().map((one) => callable(name, one, node));
  const [declared] = symbol.declarations ?? [];
  const optional = symbol.flags & ts.SymbolFlags.Optional ? "?" : "";
  return [`${name}${optional}: ${declared?.type?.getText() ?? checker.typeToString(type, node, FLAGS)}`];
}

const isHidden = (symbol) =>
  isInternal(symbol) ||
  symbol.name.startsWith("__#") ||
  symbol.name === "prototype" ||
  (symbol.declarations ?? []).some(
    (one) =>
      (one.name && ts.isPrivateIdentifier(one.name)) ||
      ts.getCombinedModifierFlags(one) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected),
  ) ||
  // What all errors and classes of the language have.
  (symbol.declarations ?? []).every((one) => one.getSourceFile().fileName.includes("/typescript/lib/"));

function memberTable(symbols, node) {
  const rows = symbols
    .filter((symbol) => !isHidden(symbol))
    .flatMap((symbol) => memberText(symbol, node).map((text) => `| ${inTable(code(text))} | ${remark(symbol)} |`));
  return rows.length === 0 ? [] : ["| | |", "| --- | --- |", ...rows, ""];
}

/** The constructor's parameter properties carry the facts of an error. */
function isError(symbol) {
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  return (
    type.getProperties().some((one) => one.name === "code") && type.getProperties().some((one) => one.name === "stack")
  );
}

function section(symbol, node) {
  const declared = symbol.declarations?.[0] ?? node;
  const text = comment(symbol);
  const head = [`### ${symbol.name}`, "", ...(text === "" ? [] : [text, ""])];
  if (symbol.flags & ts.SymbolFlags.Function) {
    const signatures = checker.getTypeOfSymbolAtLocation(symbol, node).getCallSignatures();
    return [...head, ...signatures.flatMap((one) => [code(callable(symbol.name, one, node)), ""])];
  }
  if (symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface)) {
    const parents = (declared.heritageClauses ?? []).flatMap((clause) => clause.types);
    const known = parents.filter(isKnown);
    const inner = parents
      .filter((one) => !isKnown(one))
      .flatMap((one) => checker.getTypeAtLocation(one).getProperties());
    const type = checker.getDeclaredTypeOfSymbol(symbol);
    const own = type.getProperties().filter((one) => !isInherited(one, symbol));
    const from = known.length === 0 ? [] : [`Is also: ${known.map((one) => code(one.getText())).join(", ")}.`, ""];
    return [...head, ...from, ...memberTable([...own, ...inner], node)];
  }
  if (symbol.flags & ts.SymbolFlags.TypeAlias) {
    const { type } = declared;
    const meant = checker.getDeclaredTypeOfSymbol(symbol);
    if (ts.isTypeLiteralNode(type) || (ts.isIntersectionTypeNode(type) && !meant.isUnion())) {
      return [...head, ...memberTable(meant.getProperties(), node)];
    }
    return [...head, code(withoutComments(type.getText()).replace(/^\|\s*/, "")), ""];
  }
  return [
    ...head,
    code(`${symbol.name}: ${checker.typeToString(checker.getTypeOfSymbolAtLocation(symbol, node), node, FLAGS)}`),
    "",
  ];
}

const withoutComments = (text) => text.replace(/\/\*\*.*?\*\//gs, "");

function isInherited(member, symbol) {
  return !(member.declarations ?? []).some(
    (one) =>
      symbol.declarations?.includes(one.parent.parent ?? one.parent) || symbol.declarations?.includes(one.parent),
  );
}

/** A reader finds it on this page, or in the language: its members need not be repeated. */
function isKnown(parent) {
  const symbol = checker.getSymbolAtLocation(parent.expression);
  const meant = symbol && symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
  const outside = (meant?.declarations ?? []).every(
    (one) => !one.getSourceFile().fileName.startsWith(join(ROOT, "src")),
  );
  return outside || everything.has(meant);
}

const byName = (one, two) => (one.name < two.name ? -1 : 1);
const isFunction = (symbol) => (symbol.flags & ts.SymbolFlags.Function) !== 0;

function exportsOf(file) {
  return checker
    .getExportsOfModule(checker.getSymbolAtLocation(program.getSourceFile(file)))
    .map((symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol))
    .filter((symbol) => !isInternal(symbol));
}

const everything = new Set(entries.flatMap(([, file]) => exportsOf(file)));

function page() {
  const told = new Map();
  const lines = [
    "# API",
    "",
    "Everything that the package exports, from the comments of its sources (`npm run api`; do not edit). Guides:",
    "[first steps](../start.md), [recipes](../recipes/README.md), [options](options.md), [events](events.md), [errors](errors.md).",
    "",
  ];
  for (const [name, file] of entries) {
    const source = program.getSourceFile(file);
    const symbols = exportsOf(file);
    lines.push(`## ${name}`, "");
    const [first] = source.statements;
    const intro = first && ts.getLeadingCommentRanges(source.text, first.getFullStart())?.[0];
    const introText = intro && /^\/\*\* (.*) \*\/$/s.exec(source.text.slice(intro.pos, intro.end))?.[1];
    if (introText && name === "holdfast") lines.push(introText.replace(/\s*\n \* ?/g, " "), "");
    const fresh = symbols.filter((symbol) => !told.has(symbol));
    const again = symbols.filter((symbol) => told.has(symbol)).toSorted(byName);
    if (again.length > 0) lines.push(`Also, as described above: ${again.map((one) => code(one.name)).join(", ")}.`, "");
    const errors = fresh.filter((symbol) => symbol.flags & ts.SymbolFlags.Class && isError(symbol)).toSorted(byName);
    const others = fresh.filter((symbol) => !errors.includes(symbol));
    const functions = others.filter(isFunction).toSorted(byName);
    const types = others.filter((symbol) => !isFunction(symbol)).toSorted(byName);
    for (const symbol of [...functions, ...types]) lines.push(...section(symbol, source));
    if (errors.length > 0) {
      lines.push("### Errors", "", `${errors.map((one) => code(one.name)).join(", ")}: see [errors](errors.md).`, "");
    }
    for (const symbol of symbols) told.set(symbol, name);
  }
  return `${lines
    .join("\n")
    .replace(/\n{3,}/g, "\n\n")
    .trimEnd()}\n`;
}

const text = page();
if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
else if (!existsSync(TARGET) || readFileSync(TARGET, "utf8") !== text) {
  console.error(`${relative(process.cwd(), TARGET)} is not what the sources say: run npm run api`);
  process.exitCode = 1;
}
