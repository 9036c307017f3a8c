import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { runFleet } from "../../lab/fleet/fleet.js";
import {
  elsewhere,
  folderForPackages,
  invented,
  oldestOfThisLayout,
  type Package,
  packageOf,
  present,
} from "../../lab/fleet/packages.js";
import { upgrade } from "../../lab/fleet/upgrade.js";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { PLACES, type Place } from "../servers/places.js";
import { startRedis } from "../servers/redis.js";
import { DUMPS, oneOfEverything } from "./layout-dumps.js";

const PAGE = resolve(import.meta.dirname, "../../docs/internals/layouts.md");
const CONTEND_MS = 800;

const folder = folderForPackages();
const places = new Map<string, Place>();
let older: Package;
let later: readonly [Package, Package];

beforeAll(async () => {
  const starting = Object.entries(PLACES).map(async ([kind, start]) => void places.set(kind, await start()));
  older = packageOf(oldestOfThisLayout());
  later = [invented(1, folder), invented(2, folder)];
  await Promise.all(starting);
}, 120_000);
afterAll(async () => {
  await Promise.all([...places.values()].map((place) => place.stop()));
  rmSync(folder, { recursive: true, force: true });
});

function placeOf(kind: string): Place {
  const place = places.get(kind);
  if (place === undefined) throw new Error(`${kind} was not started`);
  return place;
}

describe.each(Object.keys(PLACES))("%s", (kind) => {
  const dump = DUMPS[kind];
  // The members of a quorum have their own.
  if (dump !== undefined) {
    test("docs/internals/layouts.md shows what the store contains, and its version", async () => {
      let found = "";
      const place = placeOf(kind);
      await oneOfEverything(place, async () => void (found = await dump(place)));
      const block = new RegExp(`(?<=<!-- layout of ${kind} -->\\n\`\`\`text\\n).*?(?=\\n\`\`\`)`, "s");
      const written = readFileSync(PAGE, "utf8").replace(block, () => found);
      if (process.env.HOLDFAST_WRITE === "1") writeFileSync(PAGE, written);
      const page = readFileSync(PAGE, "utf8");
      expect(found, "run it with HOLDFAST_WRITE=1, and think about the version").toBe(block.exec(page)?.[0]);
      const { lowest, highest } =
        LAYOUT_VERSIONS[kind === "mariadb" ? "mysql" : (kind as keyof typeof LAYOUT_VERSIONS)];
      expect(page).toContain(`| ${kind} | ${lowest} | ${highest} |`);
    });
  }

  test("a fleet of two versions breaks no rule, and each hands over to the other", async () => {
    const versions = [older, present()] as const;
    const result = await runFleet(kind, placeOf(kind), versions, CONTEND_MS);
    const { holds, handOvers, continued, added, violations } = result;
    const [figures, passed] = [holds.join(" and "), handOvers.join(" and ")];
    console.log(`${kind}: holds of the older and the newer ${figures}, hand-overs to them from the other ${passed}`);
    expect(violations).toEqual([]);
    expect(Math.min(...holds)).toBeGreaterThan(5);
    expect(Math.min(...handOvers)).toBeGreaterThan(0);
    expect(continued).toEqual(kind === "zookeeper" ? null : [1, 1]);
    expect(added?.[1]).toBe(added?.[0]);
  });

  test("the next layout takes everything along beside the present one, and the one after that is refused", async () => {
    const [tooNew, tooOld] = await upgrade(placeOf(kind), present(), ...later);
    expect(tooNew?.reads).toMatch(
      /^EngineRefusedError: .*speak layout version 2, and .*too new, speaks 3 or 4\. Update one version/,
    );
    expect(tooOld?.reads).toMatch(
      /^EngineRefusedError: .*speak layout version 3 or 4, and .*too old, speaks 2\. Update Holdfast here/,
    );
  });
});

test("a version that keeps its locks elsewhere is found out", async () => {
  const { url, running } = await startRedis();
  onTestFinished(() => running.stop());
  const place = { url, stop: () => running.stop() };
  const { violations } = await runFleet("redis", place, [present(), elsewhere(folder)], CONTEND_MS);
  expect(violations.join("\n")).toMatch(/exclusion/);
});
