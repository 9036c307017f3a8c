import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { EVENT_TYPES } from "../src/core/events.js";
import { allBlocks, complaints, pages, ROOT } from "./docs/blocks.js";
import { EXCUSED, excuseOf, needsServer } from "./docs/excused.js";
import { runBlock } from "./docs/run.js";

const blocks = allBlocks();
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");

test("every block in the docs compiles", { timeout: 180_000 }, () => {
  expect(blocks.length).toBeGreaterThan(20);
  expect(complaints(blocks.filter((block) => excuseOf(block)?.compiles !== false))).toEqual([]);
});

test("a wrong block would not", { timeout: 180_000 }, () => {
  const code =
    'import { connect } from "holdfast";\nawait (await connect("memory:")).mutex("a").acquire({ waitms: 5 });\n';
  for (const language of ["ts", "js"] as const) {
    expect(complaints([{ place: "docs/none.md:1", page: "docs/none.md", language, code }])).toEqual([
      expect.stringContaining("waitms"),
    ]);
  }
});

// What needs a server runs in process/docs.test.ts.
test.concurrent.each(blocks.filter((block) => !needsServer(block) && excuseOf(block) === undefined))(
  "the block at $place runs",
  { timeout: 180_000 },
  async (block) => {
    await runBlock(block);
  },
);

test("no excuse outlives its block", () => {
  expect(EXCUSED.filter((excuse) => !blocks.some((block) => excuseOf(block) === excuse))).toEqual([]);
});

test("every link to a file leads somewhere", () => {
  const dead = pages().flatMap((page) => {
    const text = read(page).replace(/^```.*?^```/gms, "");
    const links = [...text.matchAll(/\]\((?!https?:|#)([^)#\s]+)[^)]*\)/g)].map(([, link = ""]) => link);
    return links.filter((link) => !existsSync(join(ROOT, dirname(page), link))).map((link) => `${page}: ${link}`);
  });
  expect(dead).toEqual([]);
});

/** The first column of the page's tables: every word in backquotes. */
const listed = (page: string): string[] =>
  [...read(page).matchAll(/^\| (`.*?) \|/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/`(\w+)`/g)].map(([, word = ""]) => word),
  );

test("docs/reference/events.md lists every event, and no other", () => {
  expect(listed("docs/reference/events.md").toSorted()).toEqual([...EVENT_TYPES].toSorted());
});

test("docs/reference/options.md lists every option of connect, mutex and acquire, and no other", () => {
  const api = read("docs/reference/api.md");
  const members = (type: string): string[] => {
    const section = new RegExp(`^### ${type}\\n(.*?)^###? `, "ms").exec(api)?.[1] ?? "";
    return [...section.matchAll(/^\| `(\w+)\??:/gm)].map(([, name = ""]) => name);
  };
  // What only URLs of one kind take stands in the lists that are checked when the program runs.
  const lists = [...read("src/connect.ts").matchAll(/(?:options:|QUORUM =) \[([^\]]*)\]/g)].map(
    ([, list = ""]) => list,
  );
  const byUrl = lists.flatMap((list) => [...list.matchAll(/"(\w+)"/g)].map(([, name = ""]) => name));
  const known = new Set([
    ...members("CommonOptions"),
    ...byUrl,
    ...members("MutexOptions"),
    ...members("AcquireOptions"),
  ]);
  expect(known.size).toBeGreaterThan(25);
  expect([...new Set(listed("docs/reference/options.md"))].toSorted()).toEqual([...known].toSorted());
});
