import { bar, line, svg, text } from "../lib/svg.js";
import { few, figuresOf, type Results } from "./results.js";

type Row = {
  readonly engine: string;
  readonly name: string;
  readonly said: string | { readonly value: number; readonly text: string };
};

const LEFT = 230;
const WIDTH = 860;
const BARS = WIDTH - LEFT - 110;
const STEP = 19;

/** How long a bar is, as a part of the whole width, and where the lines behind the bars stand. */
type Scale = { readonly at: (value: number) => number; readonly lines: readonly number[]; readonly says: string };

function logarithmic(values: readonly number[]): Scale {
  const low = Math.floor(Math.log10(Math.min(...values)));
  const decades = Math.max(1, Math.ceil(Math.log10(Math.max(...values))) - low);
  return {
    at: (value) => (Math.log10(value) - low) / decades,
    lines: Array.from({ length: decades + 1 }, (_, decade) => decade / decades),
    says: "logarithmic scale: each line is ten times the one before",
  };
}

function linear(values: readonly number[]): Scale {
  const most = Math.max(1, ...values);
  return { at: (value) => value / most, lines: [0, 1 / most], says: "the lines are 0 and 1" };
}

/** Our own bars stand out. Times of a process's own memory and of five servers only fit beside each other by their logarithm. */
export function bars(title: string, rows: readonly Row[], isShare: boolean): string {
  const values = rows.flatMap(({ said }) => (typeof said === "string" || said.value <= 0 ? [] : [said.value]));
  const scale = (isShare ? linear : logarithmic)(values.length > 0 ? values : [1]);
  const parts = [text(12, 24, title, "title"), text(WIDTH - 12, 24, scale.says, "dim", "end")];
  let y = 40;
  let last = "";
  const bottom = (): number => 44 + rows.length * STEP + (new Set(rows.map(({ engine }) => engine)).size - 1) * 7;
  for (const part of scale.lines) {
    const x = LEFT + part * BARS;
    parts.push(line(x, 38, x, bottom(), "axis", "2 4"));
  }
  for (const { engine, name, said } of rows) {
    if (last !== "" && engine !== last) y += 7;
    if (engine !== last) parts.push(text(12, y + 13, engine));
    last = engine;
    const own = name === "holdfast";
    parts.push(text(LEFT - 8, y + 13, name, own ? "" : "dim", "end"));
    if (typeof said === "string") {
      parts.push(text(LEFT + 6, y + 13, said, "dim"));
    } else {
      const width = said.value > 0 ? Math.max(2, scale.at(said.value) * BARS) : 2;
      parts.push(bar(LEFT, y + 2, width, STEP - 5, own ? "c0" : "c4", `${engine}, ${name}: ${said.text}`));
      parts.push(text(LEFT + width + 6, y + 13, said.text));
    }
    y += STEP;
  }
  return svg(WIDTH, bottom() + 10, title, parts);
}

/** Here the lengths are the point: no logarithm. */
export function herdPicture({ engines }: Results): string {
  const title = "ZooKeeper: messages to and from the server per hand-over";
  const rows = ["holdfast", "one node"].flatMap((name) => {
    const figures = figuresOf(engines.zookeeper?.contestants[name] ?? {}, "herd");
    if (typeof figures === "string") return [{ name, label: name, value: 0, said: figures }];
    return figures.sessions.map((sessions, at) => {
      const value = figures.messages[at] ?? 0;
      return { name, label: `${name === "holdfast" ? "queue" : name}, ${sessions} waiting`, value, said: few(value) };
    });
  });
  const most = Math.max(1, ...rows.map(({ value }) => value));
  const parts = [text(12, 24, title, "title")];
  rows.forEach(({ name, label, value, said }, at) => {
    const y = 40 + at * 26;
    const width = Math.max(2, (value / most) * BARS);
    parts.push(text(LEFT - 8, y + 14, label, "", "end"));
    parts.push(bar(LEFT, y, width, 19, name === "holdfast" ? "c0" : "c1", `${label}: ${said}`));
    parts.push(text(LEFT + width + 6, y + 14, said));
  });
  return svg(WIDTH, 50 + rows.length * 26, title, parts);
}
