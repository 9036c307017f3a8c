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
  const pages = [...files("docs", /\.md$/), ...files("examples", /README\.md$/), "README.md", "CONTRIBUTING.md"];
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
