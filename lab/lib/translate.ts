/**
 * How a page that is made of results reads in another language: each paragraph, point, heading and cell of the English page with its
 * translation. `{}` stands for what changes with the results; `{1}` is the first of these in the translation. A text without a
 * translation is an error, so that nobody changes the words of one language alone.
 */
export type Translation = {
  readonly texts: readonly (readonly [english: string, translated: string])[];
  /** Words that stand in cells and in the place of a `{}`, and what becomes of them. */
  readonly words: Readonly<Record<string, string>>;
};

export function translate(page: string, { texts, words }: Translation): string {
  const patterns = texts.map(([english, translated]) => ({ pattern: patternOf(english), translated }));
  const known = (text: string): string | undefined => (Object.hasOwn(words, text) ? words[text] : undefined);
  /** What stands in the place of a `{}`: a word, a part of a sentence, a figure, or a list of them. */
  const word = (text: string): string =>
    known(text) ??
    sentence(text) ??
    text
      .split(", ")
      .map((one) => known(one) ?? one)
      .join("、");
  const sentence = (text: string): string | undefined => {
    for (const { pattern, translated } of patterns) {
      const found = pattern.exec(text);
      if (found !== null) return translated.replaceAll(/\{(\d+)\}/g, (_, n: string) => word(found[Number(n)] ?? ""));
    }
    return undefined;
  };
  const required = (text: string): string => {
    const translated = known(text) ?? sentence(text);
    if (translated === undefined) throw new Error(`there is no translation of "${text}"`);
    return translated;
  };
  const cell = (text: string): string => {
    const [, title] = /^\[([^\]]+)\]\(#[^)]+\)$/.exec(text) ?? [];
    if (title !== undefined) return `[${required(title)}](#${anchorOf(required(title))})`;
    // Figures and code are the same in every language.
    return /[a-z]/i.test(text.replaceAll(/`[^`]*`/g, "")) ? required(text) : text;
  };
  const row = (line: string): string => {
    const cells = line.slice(2, -2).split(" | ");
    return `| ${cells.map((text) => rule(text.trim()) ?? cell(text.trim())).join(" | ")} |`;
  };
  const block = (text: string): string => {
    if (text.startsWith("|")) return text.split("\n").map(row).join("\n");
    const [, marks, title = ""] = /^(#+) (.+)$/.exec(text) ?? [];
    if (marks !== undefined) return `${marks} ${required(title)}`;
    const points = text.split(/\n(?=- )/);
    return points.map((point) => required(point.replaceAll(/\n\s*/g, " "))).join("\n");
  };
  return `${page.trim().split(/\n\n+/).map(block).join("\n\n")}\n`;
}

/** As "---:", without the width that it has in the English source. */
const rule = (text: string): string | undefined => (/^-+:?$/.test(text) ? text.replace(/-+/, "---") : undefined);

const patternOf = (english: string): RegExp =>
  new RegExp(`^${english.replaceAll(/[.*+?^$()|[\]\\]/g, "\\$&").replaceAll("{}", "(.*?)")}$`);

/** As GitHub makes it of a heading. */
const anchorOf = (title: string): string =>
  title
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
