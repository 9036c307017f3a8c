// What programs that read, rather than people, find on the site: llms.txt, llms-full.txt, and each page as it was written.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { onSite } from "./links.mjs";
import { DOCS, FOLDERS, groupsOf } from "./list.mjs";

export function writeForReaders(out, { base, name, about }) {
  for (const [language, folder] of Object.entries(FOLDERS)) {
    const parts = [`# ${name}\n`, `> ${about[language]}\n`];
    const full = [...parts];
    for (const { title, pages } of groupsOf(language)) {
      parts.push(`## ${title}\n`);
      for (const { path, title } of pages) {
        // Comments tell editors and tests what to do with a page.
        const text = readFileSync(join(DOCS, path), "utf8").replace(/^<!--.*?-->\n+/gms, "");
        const page = onSite(path);
        mkdirSync(dirname(join(out, page)), { recursive: true });
        writeFileSync(join(out, page), text);
        const said = firstSentence(text);
        parts.push(`- [${title}](${base}${page})${said === "" ? "" : `: ${said}`}`);
        full.push(text);
      }
      parts.push("");
    }
    writeFileSync(join(out, folder, "llms.txt"), parts.join("\n"));
    writeFileSync(join(out, folder, "llms-full.txt"), full.join("\n"));
  }
}

/** What a page says first, below its title. */
export function firstSentence(text) {
  const paragraph = /^# .*\n+((?:[^\n#|`!<-][^\n]*\n)+)/m.exec(text)?.[1] ?? "";
  const plain = paragraph
    .replaceAll("\n", " ")
    .replace(/\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\*\*/g, "")
    .trim();
  return /^.*?(?:[.!?](?= |$)|[。！？])/.exec(plain)?.[0] ?? plain;
}
