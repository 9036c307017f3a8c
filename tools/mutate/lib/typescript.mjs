// Mutants of TypeScript, found in the syntax tree; of statements in SQL that stand in its texts too. And whether a mutant
// still compiles: what the compiler refuses is no mistake that anybody could make.
import { join } from "node:path";
import ts from "typescript";
import { sqlMutants } from "./sql.mjs";
import { shifted } from "./tokens.mjs";

const TURNED = { "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===", "==": "!=", "!=": "==" };
const SHIFTED = { "+": "-", "-": "+", "+=": "-=", "-=": "+=" };
const TURNED_CALLS = { max: "min", min: "max", ceil: "floor", floor: "ceil" };
const SQL = /\b(?:SELECT|UPDATE|INSERT|DELETE)\b[^]*\b(?:FROM|SET|INTO|WHERE)\b/;

export function* typescriptMutants(source, { sql = false } = {}) {
  const file = ts.createSourceFile("file.ts", source, ts.ScriptTarget.Latest, true);
  yield* walk(file);

  function* walk(node) {
    // Types, what is imported, and the words of an error decide nothing.
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isThrowStatement(node)) return;
    yield* at(node);
    for (const child of node.getChildren(file)) yield* walk(child);
  }

  function* at(node) {
    const edit = (operator, one, to) => ({ operator, at: one.getStart(file), end: one.getEnd(), to });
    const textOf = (one) => one.getText(file);
    if (ts.isBinaryExpression(node)) {
      const operator = node.operatorToken.getText(file);
      if (TURNED[operator] !== undefined) yield edit("turn comparison", node.operatorToken, TURNED[operator]);
      if (SHIFTED[operator] !== undefined) yield edit("shift bound", node.operatorToken, SHIFTED[operator]);
      if (operator === "&&" || operator === "||") {
        const chained = ts.isBinaryExpression(node.left) && node.left.operatorToken.getText(file) === operator;
        if (!chained) yield edit("drop condition", node, textOf(node.right));
        yield edit("drop condition", node, textOf(node.left));
      }
    }
    if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken) {
      yield edit("drop condition", node, textOf(node.operand));
    }
    if (ts.isIfStatement(node)) yield* both(node.expression);
    if (ts.isConditionalExpression(node)) yield* both(node.condition);
    if (ts.isWhileStatement(node)) yield edit("decide condition", node.expression, "false");
    if (ts.isExpressionStatement(node) && !ts.isStringLiteral(node.expression)) {
      const alone = ts.isIfStatement(node.parent) && node.parent.elseStatement === undefined;
      // Without an else, the condition that is never met is the same.
      if (!alone) yield edit("drop statement", node, ";");
    }
    const indexes = ts.isElementAccessExpression(node.parent ?? node) || ts.isEnumMember(node.parent ?? node);
    if (ts.isNumericLiteral(node) && !indexes) {
      const place = edit("", node, "");
      yield* shifted({ ...place, text: textOf(node).replaceAll("_", "") });
    }
    if (ts.isCallExpression(node) || ts.isNewExpression(node)) yield* called(node);
    if (
      sql &&
      (ts.isTemplateExpression(node) || ts.isNoSubstitutionTemplateLiteral(node) || ts.isStringLiteral(node))
    ) {
      if (SQL.test(textOf(node))) yield* sqlMutants(source, { from: node.getStart(file) + 1, to: node.getEnd() - 1 });
    }

    function* both(one) {
      for (const to of ["true", "false"]) if (textOf(one) !== to) yield edit("decide condition", one, to);
    }

    function* called(call) {
      const list = call.arguments ?? [];
      const name = ts.isPropertyAccessExpression(call.expression) ? call.expression : undefined;
      const math = name !== undefined && textOf(name.expression) === "Math";
      if (math && TURNED_CALLS[name.name.text] !== undefined) {
        yield edit("turn comparison", name.name, TURNED_CALLS[name.name.text]);
        return;
      }
      for (let n = 0; n + 1 < list.length; n += 1) {
        const [one, two] = [list[n], list[n + 1]];
        if (isPlain(one) || isPlain(two) || textOf(one) === textOf(two)) continue;
        const [start, end] = [one.getStart(file), two.getEnd()];
        const between = source.slice(one.getEnd(), two.getStart(file));
        yield { operator: "swap arguments", at: start, end, to: textOf(two) + between + textOf(one) };
      }
    }
  }

  /** Literals and functions are not mistaken for one another. */
  function isPlain(node) {
    return (
      ts.isLiteralExpression(node) ||
      ts.isArrowFunction(node) ||
      ts.isFunctionExpression(node) ||
      ts.isObjectLiteralExpression(node) ||
      ts.isTemplateExpression(node) ||
      ts.isSpreadElement(node)
    );
  }
}

/** As it is built, of a text that is known to compile. */
export function transpiled(text) {
  const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022, verbatimModuleSyntax: true };
  return ts.transpileModule(text, { compilerOptions }).outputText;
}

/** Answers whether a text of a file compiles, by the project's own settings. Only that file is looked at. */
export function compiler(root) {
  const config = ts.getParsedCommandLineOfConfigFile(join(root, "tsconfig.build.json"), {}, ts.sys);
  const changed = new Map();
  let version = 0;
  const host = {
    getScriptFileNames: () => config.fileNames,
    getScriptVersion: (name) => String(changed.get(name)?.version ?? 0),
    getScriptSnapshot: (name) => {
      const text = changed.get(name)?.text ?? ts.sys.readFile(name);
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
    },
    getCurrentDirectory: () => root,
    getCompilationSettings: () => config.options,
    getDefaultLibFileName: (options) => ts.getDefaultLibFilePath(options),
    fileExists: (name) => ts.sys.fileExists(name),
    readFile: (name) => ts.sys.readFile(name),
    directoryExists: (name) => ts.sys.directoryExists(name),
    getDirectories: (name) => ts.sys.getDirectories(name),
  };
  const service = ts.createLanguageService(host, ts.createDocumentRegistry());
  const problems = (name) => [...service.getSyntacticDiagnostics(name), ...service.getSemanticDiagnostics(name)];
  return (file, text) => {
    const name = join(root, file);
    version += 1;
    changed.set(name, { text, version });
    const fine = problems(name).length === 0;
    version += 1;
    changed.set(name, { text: ts.sys.readFile(name), version });
    return fine;
  };
}
