// Compiles src/engines/redis/lua/*.lua into scripts.generated.ts, and refuses a script whose header and code disagree.
// `--check`: write nothing, fail when the committed file is not what would be written.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { templateLiteral } from "./template-literal.mjs";

const ENGINE = resolve(import.meta.dirname, "../src/engines/redis");
const FOLDER = join(ENGINE, "lua");
const TARGET = join(ENGINE, "scripts.generated.ts");

const byText = (one, two) => (one < two ? -1 : 1);
const unique = (matches) => [...new Set([...matches].map((match) => match[1]))].toSorted(byText);

function parts(text) {
  const lines = text.split("\n");
  const end = lines.findIndex((line) => !line.startsWith("--"));
  return { header: lines.slice(0, end).join("\n"), code: lines.slice(end).join("\n") };
}

/** Each key and argument that the code reads stands in the header, each answer it gives too, and nothing else. */
export function problems(file, text) {
  const { header, code } = parts(text);
  const words = /(?:return|[^=~]=|and|or|\{|string\.format\()\s*'([a-z]+)[ ']/g;
  const compared = {
    keys: [header.matchAll(/^-- KEYS\[(.+?)\]  /gm), code.matchAll(/\bKEYS\[([^\]]+)\]/g)],
    arguments: [header.matchAll(/^-- ARGV\[(.+?)\]  /gm), code.matchAll(/\bARGV\[([^\]]+)\]/g)],
    answers: [
      header.matchAll(/^-- returns ([a-z]+)/gm),
      [
        ...code.matchAll(words),
        ...code.matchAll(/(?:=|return) (\w+)Text\(/g),
        ...(code.includes("= isolated(") ? [["", "error"]] : []),
      ],
    ],
  };
  return Object.entries(compared).flatMap(([what, [told, used]]) => {
    const [inHeader, inCode] = [unique(told).join(", "), unique(used).join(", ")];
    return inHeader === inCode ? [] : [`${file}: the header lists the ${what} ${inHeader}; the code has ${inCode}`];
  });
}

/** What is sent to the server has no comments and no indentation. */
function bare(code) {
  const lines = code.split("\n").map((line) => line.trim());
  return lines.filter((line) => line !== "" && !line.startsWith("--")).join("\n");
}

const SHARED = "shared/";

/** The pieces of a script in their order: text of its own, and names of what it shares with others. */
function pieces(code) {
  return code
    .split(/^-- include (.+)\.lua$/m)
    .map((piece, at) => (at % 2 === 1 ? { shared: piece.slice(SHARED.length) } : { text: bare(piece) }))
    .filter(({ text }) => text !== "");
}

const luaFiles = (folder) =>
  readdirSync(folder)
    .filter((file) => file.endsWith(".lua"))
    .toSorted(byText);

/**
 * Every script: its name, its text and the pieces that the text is joined from. `edit` changes a file before it is compiled:
 * a line `-- plain <path>: <code>` is a comment in what is shipped, and switches that fast path off in a test build.
 */
export function scripts(edit = (_file, text) => text) {
  const read = (file) => edit(file, readFileSync(join(FOLDER, file), "utf8"));
  const shared = Object.fromEntries(
    luaFiles(join(FOLDER, SHARED)).map((file) => [file.slice(0, -4), bare(read(SHARED + file))]),
  );
  const all = luaFiles(FOLDER).map((file) => {
    const text = read(file);
    const list = pieces(parts(text).code);
    const source = list.map((piece) => piece.text ?? shared[piece.shared]).join("\n");
    const name = file.slice(0, -4).replace(/-(.)/g, (_, letter) => letter.toUpperCase());
    return { file, text, name, list, source };
  });
  return { shared, all };
}

export function compile() {
  const { shared, all } = scripts();
  const wrong = all.flatMap(({ file, text }) => problems(file, text));
  if (wrong.length > 0) throw new Error(wrong.join("\n"));
  const entries = all.map(({ name, list, source }) => {
    const sha = createHash("sha1").update(source).digest("hex");
    const texts = list.map((piece) =>
      piece.shared === undefined ? templateLiteral(piece.text) : piece.shared.toUpperCase(),
    );
    return `  ${name}: {\n    sha: "${sha}",\n    pieces: [${texts.join(", ")}],\n  },\n`;
  });
  const texts = Object.entries(shared).map(
    ([name, text]) => `const ${name.toUpperCase()} =\n  ${templateLiteral(text)};\n\n`,
  );
  return (
    "// Compiled from lua/*.lua by scripts/compile-lua.mjs (npm run scripts). Do not edit.\n\n" +
    texts.join("") +
    "/** The pieces of a script, joined by line ends, are what its hash is of. What scripts share stands here once. */\n" +
    `export const SCRIPTS = {\n${entries.join("")}} as const;\n`
  );
}

if (process.argv[1] === import.meta.filename) {
  const text = compile();
  if (!process.argv.includes("--check")) writeFileSync(TARGET, text);
  else if (readFileSync(TARGET, "utf8") !== text) {
    console.error("src/engines/redis/scripts.generated.ts is not what lua/*.lua compiles to: run npm run scripts");
    process.exit(1);
  }
}
