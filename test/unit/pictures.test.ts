import { readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { expect, test } from "vitest";

type Row = { readonly name: string; readonly sold: number; readonly seconds: number };
type Chart = (rows: readonly Row[], items: number, buyers: number) => string;
// Examples are plain JavaScript.
const CHART = "../../examples/flash-sale/chart.mjs";
const { chart } = (await import(CHART)) as { chart: Chart };

const ROOT = resolve(import.meta.dirname, "../..");

/** Wider than any usual font draws it, for a picture is drawn in the reader's. */
const WIDTH_OF_ITS_HEIGHT = 0.6;

const number = (attributes: string, name: string): number | undefined => {
  const [, value] = new RegExp(` ${name}="([-\\d.]+)"`).exec(attributes) ?? [];
  return value === undefined ? undefined : Number(value);
};

/** The texts of a picture that reach over its edge. */
function cutOff(picture: string): string[] {
  const [, head = ""] = /^<svg([^>]*)>/.exec(picture) ?? [];
  const [width = 0, height = 0] = [number(head, "width"), number(head, "height")];
  expect(width * height).toBeGreaterThan(0);
  const texts = [...picture.matchAll(/<text([^>]*)>([^<]*)<\/text>/g)];
  expect(texts.length).toBeGreaterThan(0);
  return texts.flatMap(([, attributes = "", escaped = ""]) => {
    const said = escaped.replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));
    const size = number(attributes, "font-size") ?? number(head, "font-size") ?? (/title/.test(attributes) ? 14 : 12);
    const wide = said.length * size * WIDTH_OF_ITS_HEIGHT;
    const [x = 0, y = 0] = [number(attributes, "x"), number(attributes, "y")];
    const [, anchor = "start"] = /text-anchor="(\w+)"/.exec(attributes) ?? [];
    const left = anchor === "end" ? x - wide : anchor === "middle" ? x - wide / 2 : x;
    return left < 0 || left + wide > width || y > height ? [said] : [];
  });
}

test("the flash sale's chart has room for its longest name and label", () => {
  const named = (name: string, sold: number): Row => ({ name, sold, seconds: 1234.56 });
  const short = chart([named("one lock", 50)], 50, 400);
  const long = chart(
    [named("no lock", 4_000), named("a way to sell with a long name", 100), named("none <sold>", 0)],
    100,
    40_000,
  );
  expect(cutOff(short)).toEqual([]);
  expect(cutOff(long)).toEqual([]);
});

test("no picture of the docs cuts off a text", () => {
  const folders = ["docs/faults", "docs/comparison"].map((folder) => join(ROOT, folder));
  const pictures = folders.flatMap((folder) => readdirSync(folder).map((file) => join(folder, file)));
  expect(pictures.length).toBeGreaterThan(10);
  for (const file of pictures) expect([file, ...cutOff(readFileSync(file, "utf8"))]).toEqual([file]);
});
