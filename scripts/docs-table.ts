// npm run docs -- --table: which page is there in which language, and how many of its code blocks the tests run.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { blocksOf, ROOT, pages as testedPages } from "../test/docs/blocks.js";
import { excuseOf, needsServer } from "../test/docs/excused.js";

type Group = { readonly pages: readonly { readonly path: string; readonly en: string; readonly zh?: string }[] };

const groups = JSON.parse(readFileSync(join(ROOT, "tools/site/pages.json"), "utf8")) as readonly Group[];
const pages = groups.flatMap((group) => group.pages);
const tested = new Set(testedPages());

type Counts = { readonly blocks: number; readonly alone: number; readonly servers: number; readonly elsewhere: number };

/** The blocks of a translation are those of the English page, which are the ones that run. */
function countsOf(page: string, english: string): Counts | null {
  if (!existsSync(join(ROOT, page))) return null;
  const originals = blocksOf(english);
  const blocks = blocksOf(page).map((block) => originals.find(({ code }) => code.endsWith(block.code)));
  const known = tested.has(english) ? blocks.filter((block) => block !== undefined) : [];
  const run = known.filter((block) => excuseOf(block) === undefined);
  const servers = run.filter(needsServer).length;
  return { blocks: blocks.length, alone: run.length - servers, servers, elsewhere: known.length - run.length };
}

const cellsOf = (counts: Counts | null): string[] =>
  counts === null
    ? ["–", "", "", ""]
    : [counts.blocks, counts.alone, counts.servers, counts.elsewhere].map((count) => (count === 0 ? "·" : `${count}`));

const rows = pages.map(({ path }) => {
  const english = `docs/${path}`;
  return { path, en: countsOf(english, english), zh: countsOf(`docs/zh-CN/${path}`, english) };
});
function sum(language: "en" | "zh", what: keyof Counts): number {
  return rows.reduce((total, row) => total + (row[language]?.[what] ?? 0), 0);
}
const KINDS = ["blocks", "alone", "servers", "elsewhere"] as const;

const HEAD = ["page", "English", "run", "on servers", "by others", "中文", "run", "on servers", "by others"];
const totals = (["en", "zh"] as const).flatMap((language) => KINDS.map((kind) => String(sum(language, kind))));
const lines = [
  HEAD,
  HEAD.map(() => "---"),
  ...rows.map(({ path, en, zh }) => [path, ...cellsOf(en), ...cellsOf(zh)]),
  [`${rows.filter(({ en }) => en).length} pages, ${rows.filter(({ zh }) => zh).length} in Chinese`, ...totals],
];
for (const line of lines) console.log(`| ${line.join(" | ")} |`);
console.log(
  "\nEnglish, 中文: the code blocks of the page. Run: by test/docs.test.ts. On servers: by test/process/docs.test.ts. By others: by the tests that test/docs/excused.ts names.",
);
