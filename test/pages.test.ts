import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, resolve, sep } from "node:path";
import { describe, expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "..");
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");

function files(folder: string, ending: RegExp): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}/${path.split(sep).join("/")}`)
    .filter((path) => ending.test(path));
}

/** Every number behind the word; a list of them may follow it. */
function cited(text: string, word: RegExp): number[] {
  return [...text.matchAll(word)].flatMap(([, numbers = ""]) => numbers.split(", ").map(Number));
}

describe("docs/internals/pitfalls.md", () => {
  const entries = read("docs/internals/pitfalls.md")
    .split(/^### /m)
    .slice(1)
    .map((text) => ({
      number: Number(/^(\d+)\. /.exec(text)?.[1]),
      text,
      tests: [...text.matchAll(/^- `([^`]+)`: (.+)$/gm)].map(([, file = "", title = ""]) => ({ file, title })),
    }));
  const suites = [...files("test", /\.test\.ts$/), ...files("src/testing/conformance", /\.ts$/)];

  test("has the entries 1 to 66 in order, each once", () => {
    expect(entries.map(({ number }) => number)).toEqual(Array.from({ length: 66 }, (_, at) => at + 1));
  });

  test("each entry has a rule, and a test or the reason why there is none", () => {
    const wrong = entries.filter(
      ({ text, tests }) => !text.includes("\n**Rule.** ") || (tests.length === 0) !== text.includes("\n**No test.** "),
    );
    expect(wrong.map(({ number }) => number)).toEqual([]);
  });

  test("every test that it cites exists", () => {
    const missing = entries.flatMap(({ number, tests }) =>
      tests
        .filter(({ file, title }) => !existsSync(join(ROOT, file)) || !read(file).includes(title))
        .map(({ file, title }) => {
          const elsewhere = suites.filter((path) => read(path).includes(title));
          return `${number}: "${title}" is not in ${file}, but in ${elsewhere.join(", ") || "no test"}`;
        }),
    );
    expect(missing).toEqual([]);
  });

  test("every test file that names a pitfall is cited by its entry", () => {
    const wrong = files("test", /\.test\.ts$/).flatMap((path) =>
      cited(read(path), /\bpitfall (\d+(?:, \d+)*)/g)
        .filter((number) => !entries[number - 1]?.tests.some(({ file }) => file === path))
        .map((number) => `${path} names pitfall ${number}`),
    );
    expect(wrong).toEqual([]);
  });

  test("every number that the code cites is an entry", () => {
    const numbers = files("src", /\.(ts|lua|sql)$/).flatMap((path) =>
      cited(read(path), /\bpitfalls?(?:\.md`)? (\d+(?:, \d+)*)/g).map((number) => ({ path, number })),
    );
    expect(numbers.length).toBeGreaterThan(20);
    expect(numbers.filter(({ number }) => !entries.some((entry) => entry.number === number))).toEqual([]);
  });
});

describe("docs/decisions", () => {
  const pages = readdirSync(join(ROOT, "docs/decisions"))
    .filter((path) => path !== "README.md")
    .toSorted();

  test("are numbered from 1 without a gap, and named by number and title", () => {
    expect(pages.map((page) => page.slice(0, 4))).toEqual(pages.map((_, at) => `${String(at + 1).padStart(3, "0")}-`));
    const wrong = pages.filter((page) => !read(`docs/decisions/${page}`).startsWith(`# ${Number(page.slice(0, 3))}. `));
    expect(wrong).toEqual([]);
  });

  test("all stand in the list with their titles", () => {
    const list = read("docs/decisions/README.md");
    const missing = pages.filter((page) => {
      const title = /^# \d+\. (.+)$/m.exec(read(`docs/decisions/${page}`))?.[1];
      return !list.includes(`[${title}](${page})`);
    });
    expect(missing).toEqual([]);
  });

  test("each says what, why, what else was tried, and how it was measured, on half a page", () => {
    const parts = ["What", "Why", "What else was tried", "How it was measured"];
    const wrong = pages.filter((page) => {
      const text = read(`docs/decisions/${page}`);
      const found = [...text.matchAll(/^\*\*(.+?)\.\*\* /gm)].map(([, part]) => part);
      return found.join() !== parts.join() || text.split(/\s+/).length > 400;
    });
    expect(wrong).toEqual([]);
  });
});

describe("all pages", () => {
  const top = ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"];
  const pages = [...files("docs", /\.md$/), ...files("examples", /README\.md$/), ...top];
  const prose = (page: string): string => read(page).replace(/^```.*?^```/gms, "");

  /** As GitHub makes it of a heading. */
  const anchor = (heading: string): string =>
    heading
      .toLowerCase()
      .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .replace(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-");

  test("every link to a heading finds it", () => {
    const dead = pages.flatMap((page) =>
      [...prose(page).matchAll(/\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)/g)]
        .filter(([, file = "", target = ""]) => {
          const path =
            file === ""
              ? page
              : normalize(join(dirname(page), file))
                  .split(sep)
                  .join("/");
          const headings = [...prose(path).matchAll(/^#+ (.+)$/gm)].map(([, heading = ""]) => anchor(heading));
          return !headings.includes(target);
        })
        .map(([link]) => `${page}: ${link}`),
    );
    expect(dead).toEqual([]);
  });

  test("every file that a page names is there", () => {
    const named = pages.flatMap((page) =>
      [...prose(page).matchAll(/`((?:src|test|lab|scripts|bench|tools|examples|docs)\/[\w./-]+\.\w+)`/g)].map(
        ([, path = ""]) => ({ page, path }),
      ),
    );
    expect(named.length).toBeGreaterThan(200);
    expect(named.filter(({ path }) => !existsSync(join(ROOT, path)))).toEqual([]);
  });
});

/** Whoever changes a page in one language changes the other, or is told which of the two lags behind. */
describe("docs/zh-CN", () => {
  const LIST = "docs/zh-CN/README.md";
  const translations = files("docs/zh-CN", /\.md$/);
  const english = (page: string): string => page.replace("docs/zh-CN/", "docs/");
  /** The list of pages is a page of its own in each language, and says which are in English only. */
  const compared = translations.filter((page) => page !== LIST);
  const blocks = (page: string): string[] => [...read(page).matchAll(/^```.*?^```$/gms)].map(([block]) => block);
  const prose = (page: string): string => read(page).replace(/^```.*?^```$/gms, "");
  const count = (page: string, what: RegExp): number => [...prose(page).matchAll(what)].length;

  test("each page has an English one, and each English one a Chinese one, or is listed as English", () => {
    expect(translations.filter((page) => !existsSync(join(ROOT, english(page))))).toEqual([]);
    const known = new Set(translations.map(english));
    const parts = new Set(["internals", "decisions"]);
    const untold = files("docs", /\.md$/)
      .filter((page) => !page.startsWith("docs/zh-CN/") && !parts.has(page.split("/")[1] ?? "") && !known.has(page))
      .filter((page) => !read(LIST).includes(`](../${page.slice("docs/".length)})`));
    expect(untold).toEqual([]);
  });

  test("the list has every page but the recipes, which have a list of their own", () => {
    const listed = `${read(LIST)}${read("docs/zh-CN/recipes/README.md").replaceAll("](", "](recipes/")}`;
    expect(compared.filter((page) => !listed.includes(`](${page.slice("docs/zh-CN/".length)})`))).toEqual([]);
  });

  test.each(compared)("%s has the code of the English page", (page) => {
    const [ours, theirs] = [blocks(page), blocks(english(page))];
    const odd = theirs.find((block) => !ours.includes(block)) ?? ours.find((block) => !theirs.includes(block));
    expect(odd, `${page} or ${english(page)} lags behind: one of them lacks this block`).toBeUndefined();
    expect(ours, `${page} has the blocks of ${english(page)} in another order`).toEqual(theirs);
  });

  test.each(compared)("%s has the sections, the table rows and the points of the English page", (page) => {
    for (const [what, pattern] of [
      ["headings", /^#+ /gm],
      ["table rows", /^\|/gm],
      ["points of lists", /^(?:-|\d+\.) /gm],
      ["files named", /`(?:src|test|lab|examples)\/[\w./-]+`/g],
    ] as const) {
      const counts = { [page]: count(page, pattern), [english(page)]: count(english(page), pattern) };
      expect(new Set(Object.values(counts)).size, `${what}: ${JSON.stringify(counts)}`).toBe(1);
    }
  });

  test.each(compared)("%s has the code words and the figures of the English page", (page) => {
    const plain = (path: string): string =>
      prose(path)
        .replace(/^ +```.*?^ +```$/gms, "")
        .replace(/<!--.*?-->/gs, "")
        .replace(/\]\([^)]*\)/g, "]");
    const words = (path: string): string[] =>
      [
        ...plain(path)
          .replaceAll("\n", " ")
          .matchAll(/`([^`]+)`/g),
      ].map(([, word = ""]) => word);
    const figures = (path: string): string[] =>
      [...plain(path).matchAll(/\d[\d.,]*/g)].map(([figure]) => figure.replace(/[.,]+$/, ""));
    for (const of of [words, figures]) {
      const ours = new Set(of(page));
      expect([...new Set(of(english(page)))].filter((one) => !ours.has(one))).toEqual([]);
    }
  });

  test.each([...translations, "README.zh-CN.md"])("%s leads to Chinese pages where there are any", (page) => {
    const links = [...prose(page).matchAll(/\]\((?!https?:)([^)#\s]+)[^)]*\)/g)].map(([, link = ""]) =>
      normalize(join(dirname(page), link))
        .split(sep)
        .join("/"),
    );
    const known = new Set(translations.map(english));
    // The page that says "English" leads there on purpose.
    expect(links.filter((link) => known.has(link) && link !== "docs/README.md")).toEqual([]);
  });

  test.each([...translations, "README.zh-CN.md"])("%s has full-width punctuation between Chinese words", (page) => {
    const text = prose(page)
      .replace(/`[^`\n]*`/g, "`")
      .replace(/\]\([^)]*\)/g, "]");
    expect(text.match(/.*(?:\p{Script=Han}[,:;()?!]|[,:;()?!]\p{Script=Han}).*/gu)).toBeNull();
  });
});

/** The sidebar of the site, in both languages. */
describe("tools/site/pages.json", () => {
  type Page = { readonly path: string; readonly en: string; readonly zh?: string };
  const groups = JSON.parse(read("tools/site/pages.json")) as readonly { readonly pages: readonly Page[] }[];
  const listed = groups.flatMap((group) => group.pages);

  /** Of those that have a Chinese title. Whoever writes one deletes it here. */
  const UNTRANSLATED = ["comparison"];

  test("every page is listed once, and nothing else is", () => {
    const pages = files("docs", /\.md$/)
      .map((path) => path.replace("docs/", ""))
      // The first page of each language, and the decisions, which their own page lists.
      .filter((path) => path !== "README.md" && !/^zh-CN\/|^decisions\/\d/.test(path));
    expect(listed.map(({ path }) => path).toSorted()).toEqual(pages.toSorted());
  });

  test("every page with a Chinese title is there in Chinese, and no other", () => {
    const chinese = listed.filter(({ path }) => existsSync(join(ROOT, "docs/zh-CN", path)));
    const missing = listed.filter((page) => page.zh !== undefined && !chinese.includes(page));
    expect(missing.map(({ path }) => path.replace(".md", ""))).toEqual(UNTRANSLATED);
    expect(chinese.filter(({ zh }) => zh === undefined)).toEqual([]);
  });
});

describe("docs/eight-problems.md, docs/redlock.md", () => {
  test("every test that a proof names by its title exists", () => {
    const proofs = [
      ...read("docs/eight-problems.md")
        .replaceAll("\n", " ")
        .matchAll(/`(test\/[^`]+)` \(("[^)]*")\)/g),
    ];
    expect(proofs.length).toBeGreaterThan(5);
    const missing = proofs.flatMap(([, file = "", titles = ""]) =>
      [...titles.matchAll(/"([^"]+)"/g)]
        .filter(([, title = ""]) => !read(file).includes(title))
        .map(([title]) => title),
    );
    expect(missing).toEqual([]);
  });

  test("the table of the run is the one that the example's own page and docs/safety.md show", () => {
    const table = (page: string): string => /^ +the lock .*?(?=^```)/ms.exec(read(page))?.[0] ?? page;
    expect(table("docs/eight-problems.md")).toBe(table("examples/naive/README.md"));
    expect(table("docs/safety.md")).toBe(table("examples/naive/README.md"));
  });

  test.each(["docs/redlock.md", "docs/zh-CN/redlock.md"])("%s says what the lab found", (page) => {
    const cells = (line: string): string[] => line.split("|").map((cell) => cell.trim());
    const lines = read(join(dirname(page), "faults.md")).split("\n");
    const head = cells(lines.find((line) => line.startsWith("| ")) ?? "");
    const columns = [/^Redis$/, /3.*Redis/, /^ZooKeeper$/, /^etcd$/].map((engine) =>
      head.findIndex((cell) => engine.test(cell)),
    );
    const rows = read(page)
      .split("\n")
      .filter((line) => /^\| [NPC]? ?\| \[/.test(line));
    expect(rows.length).toBeGreaterThan(8);
    for (const row of rows) {
      const [, , fault = "", ...said] = cells(row);
      const anchor = /#[^)]+/.exec(fault)?.[0];
      const found = cells(lines.find((line) => line.startsWith("| [") && line.includes(`(${anchor})`)) ?? "");
      expect(said.slice(0, 4), fault).toEqual(columns.map((column) => found[column]));
    }
  });
});
