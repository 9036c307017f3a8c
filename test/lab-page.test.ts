import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { FAULTS } from "../lab/faults.js";
import { ROOT } from "../lab/lib/results.js";
import { pagesOf } from "../lab/report.js";
import type { Results } from "../lab/results.js";
import { ENGINES } from "../lab/rigs.js";
import { scalePagesOf } from "../lab/scale/page.js";
import type { ScaleResults } from "../lab/scale/results.js";

const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");
const results = JSON.parse(read("lab/results/faults.json")) as Results;

test("docs/faults.md and its pictures are what the lab's last results say", () => {
  const pages = pagesOf(results);
  for (const [path, content] of Object.entries(pages)) expect(read(path), path).toBe(content);
  const pictures = readdirSync(join(ROOT, "docs/faults")).map((file) => `docs/faults/${file}`);
  expect(pictures.filter((path) => !Object.hasOwn(pages, path))).toEqual([]);
  expect(pages["docs/faults.md"]?.match(/\| +\|/g), "every cell of its tables says something").toBeNull();
});

test("no cell of the lab is empty, and each came out as expected", () => {
  const empty = FAULTS.flatMap((fault) =>
    ENGINES.filter(({ name }) => {
      const isIt = (one: { engine: string; fault: string }): boolean => one.engine === name && one.fault === fault.name;
      return !results.cells.some(isIt) && !results.blanks.some(isIt);
    }).map(({ name }) => `${name} ${fault.name}`),
  );
  expect(empty).toEqual([]);
  expect(results.cells.filter(({ ok }) => !ok).map(({ engine, fault }) => `${engine} ${fault}`)).toEqual([]);
});

test("docs/scale.md and its pictures are what the last measurement says, and it lost nothing", () => {
  const scale = JSON.parse(read("lab/results/scale.json")) as ScaleResults;
  const pages = scalePagesOf(scale);
  for (const [path, content] of Object.entries(pages)) expect(read(path), path).toBe(content);
  for (const { held, idle, fleet } of [scale.single, scale.cluster]) {
    expect(held.map(({ size }) => size)).toContain(100_000);
    expect([...held, ...fleet.rows].filter(({ lost }) => lost > 0)).toEqual([]);
    expect(held.filter(({ wrong }) => wrong > 0)).toEqual([]);
    expect(idle.filter(({ missing }) => missing > 0)).toEqual([]);
  }
});
