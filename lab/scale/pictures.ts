import { bar, line, svg, text } from "../lib/svg.js";

export type Series = {
  readonly label: string;
  /** One of the fills of `svg`. */
  readonly kind: string;
  readonly points: readonly { readonly x: number; readonly y: number }[];
};

const WIDTH = 860;
const HEIGHT = 300;
const [LEFT, RIGHT, TOP, BOTTOM] = [60, 210, 46, 256];
const DOT = 8;

/** How something grows: sizes by their logarithm from left to right, what each costs upwards from 0. */
export function growth(title: string, unit: string, series: readonly Series[]): string {
  const points = series.flatMap((one) => one.points);
  const [low, high] = [Math.min, Math.max].map((end) => Math.log10(end(...points.map(({ x }) => x)))) as [
    number,
    number,
  ];
  const most = Math.max(1, ...points.map(({ y }) => y));
  const left = (x: number): number => LEFT + ((Math.log10(x) - low) / Math.max(1, high - low)) * (WIDTH - LEFT - RIGHT);
  const top = (y: number): number => BOTTOM - (y / most) * (BOTTOM - TOP);
  const parts = [text(12, 24, title, "title"), text(LEFT - 8, TOP + 4, Math.round(most), "dim", "end")];
  parts.push(text(LEFT - 8, BOTTOM + 4, 0, "dim", "end"), text(LEFT - 8, TOP + 18, unit, "dim", "end"));
  parts.push(line(LEFT, BOTTOM, WIDTH - RIGHT, BOTTOM), line(LEFT, TOP, WIDTH - RIGHT, TOP, "axis", "2 4"));
  for (const x of new Set(points.map((point) => point.x)))
    parts.push(text(left(x), BOTTOM + 18, x.toLocaleString("en"), "dim", "middle"));
  for (const { label, kind, points: own } of series) {
    own.forEach(({ x, y }, at) => {
      const before = own[at - 1];
      if (before !== undefined) parts.push(line(left(before.x), top(before.y), left(x), top(y)));
      const tip = `${label}, ${x.toLocaleString("en")}: ${y.toFixed(1)} ${unit}`;
      parts.push(bar(left(x) - DOT / 2, top(y) - DOT / 2, DOT, DOT, kind, tip));
    });
  }
  for (const [label, y] of labelTops(series, top)) parts.push(text(WIDTH - RIGHT + 12, y + 4, label));
  return svg(WIDTH, HEIGHT, title, parts);
}

/** Beside the last point of its series, and below the label before it. */
function labelTops(series: readonly Series[], top: (y: number) => number): readonly (readonly [string, number])[] {
  const wanted = series.map(({ label, points }) => [label, top(points.at(-1)?.y ?? 0)] as const);
  const placed: (readonly [string, number])[] = [];
  for (const [label, y] of wanted.toSorted(([, one], [, two]) => one - two))
    placed.push([label, Math.max(y, (placed.at(-1)?.[1] ?? -Infinity) + 16)]);
  return placed;
}
