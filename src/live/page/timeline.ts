import { h, type Row, Rows, s, scrolling, setText } from "./dom.js";
import type { Model, Span } from "./model.js";
import { ageText, bdi, lockHref, shortened, shortOwner } from "./text.js";

const [LANE, GAP, HEAD] = [16, 4, 26];
const SIZE = { left: 170, width: 640 };
const SHOWN_MS = 60_000;
/** Between two times on the axis: the shortest of these for which their texts do not touch. */
const STEPS_MS = [1_000, 5_000, 10_000, 30_000];
const TICK_WIDTH = 48;
const NAMES_SHOWN = 8;
const LANES_SHOWN = 8;
const ROWS_OF_LANE = 8;
const ROWS_SHOWN = 100;

/** Something that a holder did or that happened to it, shown in its lane: a moment, or a time that may still go on. */
type Mark = {
  readonly who: string;
  readonly kind: string;
  readonly at: number;
  readonly until?: number | null;
  readonly told: string;
};

/** What fits: names of holders up to `left`, the bars from there on. */
type Size = { readonly left: number; readonly width: number };

/** The playground of the docs has marks to show, readers of another language, and less room. */
type BandsOptions = {
  readonly words?: typeof WORDS;
  readonly marks?: () => readonly Mark[];
  readonly size?: () => Size;
};

const WORDS = {
  label: "Timeline, the hand-overs follow as text",
  nobody: "Nobody has held it while this page was open.",
  now: "now",
  more: (count: number): string => `and ${count} more holders`,
  about: (what: string, age: string): string => `Who held ${what} in the last ${age}`,
  names: (count: number): string => `${count} names`,
  bar: (who: string, token: number, age: string, held: boolean): string =>
    `${who}: token ${token}, ${age}${held ? ", still held" : ""}`,
};

/** A band for each name, a lane for each holder: who held when, as the lab draws it. */
export class Bands {
  readonly element: HTMLElement;
  readonly #picture = s("svg", { role: "img" });
  readonly #none: HTMLElement;
  readonly #model: Model;
  readonly #words: typeof WORDS;
  readonly #marks: () => readonly Mark[];
  readonly #size: () => Size;

  constructor(model: Model, { words = WORDS, marks = () => [], size = () => SIZE }: BandsOptions = {}) {
    this.#model = model;
    this.#words = words;
    this.#marks = marks;
    this.#size = size;
    this.#none = h("p", { class: "dim" }, words.nobody);
    this.element = h("div", {}, scrolling(words.label, this.#picture), this.#none);
  }

  show(names: readonly string[]): void {
    const now = this.#model.now();
    const start = Math.max(this.#model.openedAt, now - SHOWN_MS);
    // A second at least, so that the first bars have a place.
    const from = Math.min(start, now - 5_000);
    const { left, width } = this.#size();
    const x = (at: number): number => left + (Math.max(0, at - from) / (now - from)) * width;
    const bands = names.map((name) => lanesOf(name, this.#model.spans, from)).filter(({ lanes }) => lanes.length > 0);
    this.#none.hidden = bands.length > 0;
    (this.#picture.parentElement as HTMLElement).hidden = bands.length === 0;
    const parts: SVGElement[] = [];
    const words = this.#words;
    const marks = this.#marks().filter(({ at, until }) => (until === undefined ? at : (until ?? now)) >= from);
    let top = HEAD;
    for (const { name, lanes, more } of bands) {
      if (names.length > 1) {
        parts.push(text(4, top + 12, shortened(name, 90), "title"));
        top += 20;
      }
      lanes.forEach(({ who, rows }, at) => {
        parts.push(text(left - 8, top + 12, shortened(who, 22), "", "end"));
        const first = top;
        for (const row of rows) {
          parts.push(...row.map((span) => bar(span, top, at, x, now, words)));
          top += LANE + GAP;
        }
        const own = marks.filter((mark) => mark.who === who);
        parts.push(...own.map((mark) => drawn(mark, first, x, now)));
      });
      if (more > 0) parts.push(text(left - 8, top + 12, words.more(more), "dim", "end"));
      top += (more > 0 ? LANE : 0) + 10;
    }
    const whole = left + width + 10;
    this.#picture.setAttribute("width", String(whole));
    this.#picture.setAttribute("height", String(top));
    this.#picture.setAttribute("viewBox", `0 0 ${whole} ${top}`);
    this.#picture.setAttribute(
      "aria-label",
      words.about(bands.length === 1 ? (bands[0]?.name ?? "") : words.names(bands.length), ageText(now - start)),
    );
    this.#picture.replaceChildren(...axis(from, now, top, x, words.now), ...parts);
  }
}

/** One holder: a row, or several for what it holds at once. */
type Lane = { readonly who: string; readonly rows: Span[][] };

function lanesOf(name: string, all: readonly Span[], from: number) {
  const lanes = new Map<string, Lane>();
  for (const span of all) {
    if (span.name !== name || (span.until ?? Infinity) < from) continue;
    const { client } = span.holder;
    const who = shortOwner(span.holder);
    const id = `${client} ${who}`;
    const lane = lanes.get(id) ?? { who, rows: [] };
    lanes.set(id, lane);
    const free = lane.rows.find((row) => (row.at(-1)?.until ?? Infinity) <= span.from);
    if (free !== undefined) free.push(span);
    else if (lane.rows.length < ROWS_OF_LANE) lane.rows.push([span]);
  }
  // The latest holders, in the order in which they came.
  const shown = [...lanes.values()].slice(-LANES_SHOWN);
  return { name, lanes: shown, more: lanes.size - shown.length };
}

function bar(
  span: Span,
  top: number,
  lane: number,
  x: (at: number) => number,
  now: number,
  words: typeof WORDS,
): SVGElement {
  const [from, until] = [x(span.from), x(span.until ?? now)];
  const width = Math.max(2, until - from);
  const heldMs = (span.until ?? now) - span.from;
  const told = words.bar(shortOwner(span.holder), span.token, ageText(heldMs), span.until === null);
  const rectangle = s(
    "rect",
    { class: `c${lane % 6}`, x: from, y: top, width, height: LANE, rx: 2 },
    s("title", {}, told),
  );
  const digits = String(span.token);
  // Tokens that are times differ at their end.
  const label = digits.length > 7 ? `…${digits.slice(-6)}` : digits;
  if (width < 56) return rectangle;
  return s("g", {}, rectangle, text(from + 4, top + 12, label, "in-bar"));
}

function drawn({ kind, at, until, told }: Mark, top: number, x: (at: number) => number, now: number): SVGElement {
  const title = s("title", {}, told);
  const [left, middle] = [x(at), top + LANE / 2];
  if (until !== undefined) {
    const width = Math.max(2, x(until ?? now) - left);
    return s("rect", { class: `mark ${kind}`, x: left, y: top, width, height: LANE, rx: 2 }, title);
  }
  return s("circle", { class: `mark ${kind}`, cx: left, cy: middle, r: 5 }, title);
}

function axis(from: number, now: number, bottom: number, x: (at: number) => number, word: string): SVGElement[] {
  const widthOf = (ms: number): number => x(from + ms) - x(from);
  const stepMs = STEPS_MS.find((ms) => widthOf(ms) >= TICK_WIDTH) ?? SHOWN_MS;
  const ticks = Array.from({ length: Math.floor((now - from) / stepMs) + 1 }, (_, n) => n * stepMs);
  return ticks.flatMap((ms) => [
    s("line", { class: "axis", x1: x(now - ms), x2: x(now - ms), y1: HEAD - 6, y2: bottom }),
    text(x(now - ms), HEAD - 10, ms === 0 ? word : `−${ms / 1000} s`, "dim", ms === 0 ? "end" : "middle"),
  ]);
}

function text(x: number, y: number, said: string, kind = "", anchor = "start"): SVGElement {
  return s("text", { x, y, class: kind, "text-anchor": anchor }, said);
}

/** The hand-overs of all names: the last ones drawn, and each in words. */
export class TimelinePage {
  readonly element: HTMLElement;
  readonly #model: Model;
  readonly #bands: Bands;
  readonly #caption = h("caption");
  readonly #rows: Rows<Span>;

  constructor(model: Model) {
    this.#model = model;
    this.#bands = new Bands(model);
    const columns = ["Seen at", "Name", "Holder", "Token", "Held for"];
    this.#rows = new Rows(
      columns,
      ({ name, token }) => `${token} ${name}`,
      (span) => handOverRow(span, model),
    );
    this.element = h(
      "section",
      { "aria-labelledby": "timeline-title" },
      h("h2", { id: "timeline-title" }, "Hand-overs since this page was opened"),
      h("p", { class: "dim" }, "The store is read at intervals: who holds for less than that may not be seen."),
      this.#bands.element,
      scrolling("Hand-overs", this.#rows.table(this.#caption)),
    );
  }

  update(): void {
    const { spans } = this.#model;
    const latest = spans.slice(-ROWS_SHOWN).toReversed();
    const names = [...new Set(spans.toReversed().map(({ name }) => name))].slice(0, NAMES_SHOWN);
    this.#bands.show(names);
    setText(
      this.#caption,
      spans.length === 0
        ? "Nothing was held yet."
        : `Who took what, the latest first: ${latest.length} of ${spans.length}`,
    );
    this.#rows.show(latest);
  }
}

function handOverRow(span: Span, model: Model): Row<Span> {
  const held = h("td", { class: "number" });
  const time = span.early ? "before" : span.seenAt.toLocaleTimeString("en-GB");
  const name = h("th", { scope: "row" }, h("a", { href: lockHref(span.name) }, bdi(span.name)));
  const token = h("td", { class: "number" }, String(span.token));
  return {
    element: h("tr", {}, h("td", {}, time), name, h("td", {}, bdi(shortOwner(span.holder))), token, held),
    update: ({ from, until, holder }) => {
      const bound = holder.atLeast ? "≥ " : "";
      setText(held, `${bound}${ageText((until ?? model.now()) - from)}${until === null ? ", still held" : ""}`);
    },
  };
}
