// The list of pages as VitePress wants it.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { onSite } from "./links.mjs";

export const ROOT = join(import.meta.dirname, "../..");
export const DOCS = join(ROOT, "docs");

/** The languages by the keys of pages.json, and the folder of each. */
export const FOLDERS = { en: "", zh: "zh-CN/" };

export const GROUPS = JSON.parse(readFileSync(join(import.meta.dirname, "pages.json"), "utf8"));

/** The pages that are there in a language, in groups: `path` is the file's in docs/, `link` the page's on the site. */
export function groupsOf(language) {
  return GROUPS.map((group) => ({
    title: group[language],
    pages: group.pages
      .filter(({ path }) => existsSync(join(DOCS, FOLDERS[language], path)))
      .map((page) => {
        const path = FOLDERS[language] + page.path;
        return { path, title: page[language] ?? page.en, link: `/${onSite(path).replace(/(index)?\.md$/, "")}` };
      }),
  })).filter(({ pages }) => pages.length > 0);
}
