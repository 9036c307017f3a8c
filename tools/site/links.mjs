// What differs between a page on the site and in the repository: how links and headings are written.
import { existsSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";

/** As GitHub makes it of a heading, because the pages link to headings as they are there. */
export function anchor(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

/** A README is its folder's page. */
export const onSite = (path) => path.replace(/(^|\/)README\.md/, "$1index.md");

/**
 * A markdown-it plugin. A link that stays inside the docs leads to a page of the site. One to another file of the repository leads to
 * the repository, if that has an address; otherwise it is text that says the file's name.
 */
export function links(md, { docs, root, files }) {
  md.core.ruler.push("holdfast-links", ({ tokens, env }) => {
    for (const { children } of tokens) {
      let outside = false;
      for (const token of children ?? []) {
        if (token.type === "link_open") outside = open(token, env.path);
        if (token.type === "link_close" && outside) {
          token.tag = "span";
          outside = false;
        }
      }
    }
  });

  /** Whether it became text. */
  function open(token, page) {
    const href = token.attrGet("href") ?? "";
    const [path, hash] = href.split("#");
    if (/^(?:[a-z]+:|\/)/i.test(href) || path === "" || !page) return false;
    const target = resolve(dirname(page), decodeURI(path));
    const inside = relative(docs, target);
    if (!inside.startsWith("..")) {
      token.attrSet("href", onSite(href));
      return false;
    }
    const file = relative(root, target).split(sep).join("/");
    if (!existsSync(join(root, file))) throw new Error(`${relative(root, page)}: there is no ${file}`);
    if (files !== null) {
      token.attrSet("href", `${files}/${file}${hash === undefined ? "" : `#${hash}`}`);
      return false;
    }
    token.tag = "span";
    token.attrs = [
      ["class", "file"],
      ["title", file],
    ];
    return true;
  }
}
