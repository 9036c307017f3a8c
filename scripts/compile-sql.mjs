// Compiles src/engines/<engine>/sql/*.sql and migrations/*.sql into scripts.generated.ts: nothing is read from disk at run
// time. Each script has a contract on top, `in` and `out`; parameters that the code and the header do not share are an
// error here, and a test compares the columns. An engine whose server keeps its functions has migrations only: there each
// function or procedure has the contract on top. With --check nothing is written: exit code 1 when a file is out of step.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join, relative } from "node:path";

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

function compile(path) {
  const lines = readFileSync(path, "utf8").trimEnd().split("\n");
  const header = lines.filter((line) => line.startsWith("-- ")).map((line) => line.slice(3));
  const code = lines.filter((line) => !line.startsWith("--")).join("\n");
  const input = fields(path, header, "in", []);
  const output = fields(path, header, "out");
  const names = input.map(([name]) => name);
  const used = new Set([...code.matchAll(/:(\w+)/g)].map(([, name]) => name));
  for (const name of used) if (!names.includes(name)) fail(path, `:${name} is not in the header`);
  for (const name of names) if (!used.has(name)) fail(path, `the header has "${name}", the code has not`);
  const sql = code.replace(/:(\w+)/g, (_, name) => `?${names.indexOf(name) + 1}`).replace(/\s+/g, " ");
  const key = basename(path, ".sql").replace(/-(\w)/g, (_, letter) => letter.toUpperCase());
  const tuple = `[${input.map(([name, type]) => `${name}: ${type}`).join(", ")}]`;
  const row = output.length === 0 ? "null" : `{ ${output.map(([name, type]) => `${name}: ${type}`).join("; ")} }`;
  return {
    type: `  ${key}: { in: ${tuple}; out: ${row} };`,
    sql: `  ${key}:\n    ${JSON.stringify(sql)},`,
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

/** Every function of the migrations with the types of its parameters; the last definition of a name counts. */
function functionsOf(path) {
  const text = readFileSync(path, "utf8");
  return [...text.matchAll(/^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) holdfast\.(\w+)\(/gm)].map((match) => {
    const [start, name] = match;
    const header = /(?:^-- .*\n)+$/m.exec(text.slice(0, match.index).replace(/(?:.|\n)*\n\n/, ""))?.[0] ?? "";
    const line = (key) =>
      new RegExp(`^-- ${key}: (.*)$`, "m").exec(header)?.[1] ?? fail(path, `${name}: no "${key}:" on top`);
    const list = parameters(text, match.index + start.length - 1);
    if (line("in") !== (list.join(", ") || "nothing"))
      fail(path, `${name}: the header's "in:" is not ${list.join(", ")}`);
    const returns = /^[^$]*?\)\s*RETURNS ([\w.[\]]+)/.exec(text.slice(match.index))?.[1];
    if (returns !== undefined && line("out") !== returns) fail(path, `${name}: the header's "out:" is not ${returns}`);
    return [name, list.map((one) => one.replace(/^(?:IN )?\w+ /, ""))];
  });
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

function generateMigrations(folder) {
  const paths = numbered(folder);
  const functions = Object.fromEntries(paths.flatMap(functionsOf));
  return `// Made by scripts/compile-sql.mjs from migrations/*.sql. Do not edit.

/** Each function with the types of its parameters. */
export const FUNCTIONS: Readonly<Record<string, readonly string[]>> = {
${Object.entries(functions)
  .map(([name, types]) => `  ${name}: ${JSON.stringify(types)},`)
  .join("\n")}
};

export const MIGRATIONS: readonly string[] = [
${paths.map((path) => `  ${JSON.stringify(bare(path))},`).join("\n")}
];
`;
}

function generate(folder) {
  if (!existsSync(join(folder, "sql"))) return generateMigrations(folder);
  const scripts = sqlFiles(join(folder, "sql")).map(compile);
  const migrations = numbered(folder).map((path) => `  ${JSON.stringify(bare(path))},`);
  return `// Made by scripts/compile-sql.mjs from sql/*.sql and migrations/*.sql. Do not edit.

export type Scripts = {
${scripts.map((script) => script.type).join("\n")}
};

export const SQL: Record<keyof Scripts, string> = {
${scripts.map((script) => script.sql).join("\n")}
};

/** From an array of columns to the row that a script's header promises; null where there are none. */
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
