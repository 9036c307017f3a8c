// Compiles src/engines/<engine>/sql/*.sql and migrations/*.sql into scripts.generated.ts: nothing is read from disk at run
// time. Each script has a contract on top, `in` and `out`; parameters that the code and the header do not share are an
// error here, and a test compares the columns. Where the server keeps functions, they stand in the migrations, each with its
// contract on top, and sql/*.sql are the plain statements that can stand for one. With --check nothing is written: exit
// code 1 when a file is out of step.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";
import { templateLiteral } from "./template-literal.mjs";

const ENGINES = join(import.meta.dirname, "../src/engines");
const TYPES = { text: "string", integer: "number", real: "number" };

const sqlFiles = (folder) =>
  existsSync(folder)
    ? readdirSync(folder)
        .filter((file) => file.endsWith(".sql"))
        .toSorted()
        .map((file) => join(folder, file))
    : [];

function fail(path, problem) {
  throw new Error(`${relative(process.cwd(), path)}: ${problem}`);
}

/** `name text, data text?` -> [["name", "string"], ["data", "string | null"]] */
function fields(path, header, key, missing) {
  const line = header.find((text) => text.startsWith(`${key}:`));
  if (line === undefined) return missing ?? fail(path, `the header has no "${key}:"`);
  const list = line.slice(key.length + 1).trim();
  if (list === "nothing") return [];
  return list.split(",").map((field) => {
    const [, name, type, nullable] = /^(\w+) (\w+)(\??)$/.exec(field.trim()) ?? fail(path, `cannot read "${field}"`);
    const text = TYPES[type] ?? fail(path, `"${type}" is none of ${Object.keys(TYPES).join(", ")}`);
    return [name, nullable ? `${text} | null` : text];
  });
}

function checkNames(path, names, used) {
  for (const name of used) if (!names.includes(name)) fail(path, `:${name} is not in the header`);
  for (const name of names) if (!used.has(name)) fail(path, `the header has "${name}", the code has not`);
}

function compile(path) {
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  const header = lines.filter((line) => line.startsWith("-- ")).map((line) => line.slice(3));
  const code = lines.filter((line) => !line.startsWith("--")).join("\n");
  const input = fields(path, header, "in", []);
  const output = fields(path, header, "out");
  const names = input.map(([name]) => name);
  const used = new Set([...code.matchAll(/:(\w+)/g)].map(([, name]) => name));
  checkNames(path, names, used);
  // Plain question marks: better-sqlite3 takes numbered ones (`?1`) for names, and binds no value to them by its position.
  const order = [...code.matchAll(/:(\w+)/g)].map(([, name]) => names.indexOf(name));
  const inOrder = order.length === names.length && order.every((position, at) => position === at);
  const sql = code.replace(/:\w+/g, "?");
  const key = camelCase(basename(path, ".sql"));
  const tuple = `[${input.map(([name, type]) => `${name}: ${type}`).join(", ")}]`;
  const row = output.length === 0 ? "null" : `{ ${output.map(([name, type]) => `${name}: ${type}`).join("; ")} }`;
  return {
    type: `  ${key}: { in: ${tuple}; out: ${row} };`,
    sql: `  ${key}:\n    ${templateLiteral(sql)},`,
    order: `  ${key}: ${inOrder ? "null" : `[${order.join(", ")}]`},`,
    row: `  ${key}: ${output.length === 0 ? "null" : `(r) => ({ ${output.map(([name], at) => `${name}: r[${at}]`).join(", ")} })`},`,
  };
}

/** The text between the parenthesis at `from` and the one that closes it, split at its commas. */
function parameters(text, from) {
  const list = [""];
  for (let at = from + 1, depth = 1; ; at += 1) {
    if (text[at] === "(") depth += 1;
    if (text[at] === ")") depth -= 1;
    if (depth === 0) return list.map((one) => one.trim().replace(/\s+/g, " ")).filter((one) => one !== "");
    if (text[at] === "," && depth === 1) list.push("");
    else list[list.length - 1] += text[at];
  }
}

const camelCase = (name) => name.replace(/[-_](\w)/g, (_, letter) => letter.toUpperCase());

/** Checks the header of each function against its code. Those with a `verb:` are called by the engine. */
function functionsOf(path) {
  const text = readFileSync(path, "utf8");
  return [...text.matchAll(/^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) holdfast\.(\w+)\(/gm)].flatMap((match) => {
    const [start, name] = match;
    const header = /(?:^-- .*\n)+$/m.exec(text.slice(0, match.index).replace(/(?:.|\n)*\n\n/, ""))?.[0] ?? "";
    const find = (key) => new RegExp(`^-- ${key}: (.*)$`, "m").exec(header)?.[1];
    const line = (key) => find(key) ?? fail(path, `${name}: no "${key}:" on top`);
    const list = parameters(text, match.index + start.length - 1);
    if (line("in") !== (list.join(", ") || "nothing"))
      fail(path, `${name}: the header's "in:" is not ${list.join(", ")}`);
    const returns = /^[^$]*?\)\s*RETURNS ([\w.[\]]+)/.exec(text.slice(match.index))?.[1];
    if (returns !== undefined && line("out") !== returns) fail(path, `${name}: the header's "out:" is not ${returns}`);
    const verb = find("verb");
    if (verb === undefined) return [];
    if (verb !== camelCase(name)) fail(path, `${name}: the header's "verb:" is not ${camelCase(name)}`);
    return [[verb, { name, parameters: Object.fromEntries(list.map(parameterOf)) }]];
  });

  /** `p_lease_ms bigint` -> ["leaseMs", "bigint"] */
  function parameterOf(parameter) {
    const [, name, type] = /^p_(\w+) (.+)$/.exec(parameter) ?? fail(path, `"${parameter}" does not begin with p_`);
    return [camelCase(name), type];
  }
}

/** A plain statement that can stand for a function; its parameters are among those of the function, by name. */
function statementOf(path, functions) {
  const text = readFileSync(path, "utf8");
  const line = (key) =>
    String(new RegExp(`^-- ${key}: (.*)$`, "m").exec(text)?.[1] ?? fail(path, `no "${key}:" on top`));
  const code = bare(path).trim();
  const [verb, names] = [line("verb"), line("in").split(", ")];
  const used = new Set([...code.matchAll(/(?<!:):([a-z]\w*)/gi)].map(([, name]) => name));
  if (line("out") !== (/RETURNING/.test(code) ? "answer" : "nothing")) fail(path, `the header's "out:" is wrong`);
  checkNames(path, names, used);
  const unknown = names.find((name) => functions[verb]?.parameters[name] === undefined);
  if (unknown !== undefined) fail(path, `"${unknown}" is no parameter of ${verb}`);
  return [verb, code];
}

/** What is sent to the server has no comments and no indentation. */
function bare(path) {
  const lines = readFileSync(path, "utf8")
    .split("\n")
    .map((line) => line.trim());
  const code = lines.filter((line) => line !== "" && !line.startsWith("--"));
  const open = code.find((line) => line.split("'").length % 2 === 0);
  if (open !== undefined) fail(path, `a text goes on in the next line, and would lose its indentation: ${open}`);
  return `${code.join("\n")}\n`;
}

function numbered(folder) {
  return sqlFiles(join(folder, "migrations")).map((path, at) => {
    if (Number.parseInt(basename(path), 10) !== at + 1) fail(path, "migrations are numbered from 0001 without gaps");
    return path;
  });
}

/** Each property of an object in a line of its own. */
const properties = (object) =>
  Object.entries(object)
    .map(([key, value]) => `  ${key}: ${typeof value === "string" ? templateLiteral(value) : JSON.stringify(value)},`)
    .join("\n");

/** For a server that keeps functions. */
function generateFunctions(folder, paths, functions) {
  const statements = Object.fromEntries(sqlFiles(join(folder, "sql")).map((path) => statementOf(path, functions)));
  return `// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.
import type { Functions, Statements } from "../../sql/verbs.js";

/** The function of each verb, and its parameters with their types, in order. */
export const FUNCTIONS = {
${properties(functions)}
} satisfies Functions;

/** Verbs that a plain statement can stand for. */
export const STATEMENTS = {
${properties(statements)}
} satisfies Statements;

export const MIGRATIONS: readonly string[] = [
${paths.map((path) => `  ${templateLiteral(bare(path))},`).join("\n")}
];
`;
}

function generate(folder) {
  const paths = numbered(folder);
  const functions = Object.fromEntries(paths.flatMap(functionsOf));
  if (Object.keys(functions).length > 0) return generateFunctions(folder, paths, functions);
  const scripts = sqlFiles(join(folder, "sql")).map(compile);
  const migrations = paths.map((path) => `  ${templateLiteral(bare(path))},`);
  return `// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.

export type Scripts = {
${scripts.map((script) => script.type).join("\n")}
};

export const SQL: Record<keyof Scripts, string> = {
${scripts.map((script) => script.sql).join("\n")}
};

/** Which of a script's values each of its question marks stands for; null where each value stands once, in order. */
export const ORDER: Record<keyof Scripts, readonly number[] | null> = {
${scripts.map((script) => script.order).join("\n")}
};

/** From an array of columns to the row that a script's header names; null where there are none. */
export const ROWS: Record<keyof Scripts, ((r: readonly unknown[]) => Record<string, unknown>) | null> = {
${scripts.map((script) => script.row).join("\n")}
};

export const MIGRATIONS: readonly string[] = [
${migrations.join("\n")}
];
`;
}

const check = process.argv.includes("--check");
for (const engine of readdirSync(ENGINES)) {
  const folder = join(ENGINES, engine);
  if (!existsSync(join(folder, "migrations"))) continue;
  const target = join(folder, "scripts.generated.ts");
  const text = generate(folder);
  const before = existsSync(target) ? readFileSync(target, "utf8") : "";
  if (text === before) continue;
  if (check) {
    console.error(`${relative(process.cwd(), target)} is out of step with its .sql files: run npm run scripts`);
    process.exitCode = 1;
  } else writeFileSync(target, text);
}
