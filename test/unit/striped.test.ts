import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { rig } from "./rig.js";

test("a key is routed the same for ever: the vectors of the docs", async () => {
  const { open } = rig();
  const { locks } = await open();
  const page = readFileSync(new URL("../../docs/recipes/striped.md", import.meta.url), "utf8");
  const vectors = [...page.matchAll(/^\| `"(.*)"` \| (\d+) \| (\d+) \|$/gm)];
  expect(vectors.length).toBeGreaterThanOrEqual(5);
  for (const [, key = "", of100, of16] of vectors) {
    expect(locks.striped("s", 100).indexOf(key), key).toBe(Number(of100));
    expect(locks.striped("s", 16).indexOf(key), key).toBe(Number(of16));
  }
});

test("keys spread evenly, and a key's lock is its stripe's", async () => {
  const { open } = rig();
  const { locks } = await open();
  const striped = locks.striped("stock", 10);
  const counts = Array.from({ length: 10 }, () => 0);
  for (let n = 0; n < 10_000; n += 1) {
    const index = striped.indexOf(`item:${n}`);
    counts[index] = (counts[index] ?? 0) + 1;
  }
  for (const count of counts) expect(Math.abs(count - 1000)).toBeLessThan(150);
  expect(striped.for("item:1").name).toBe(`stock/${striped.indexOf("item:1")}`);
  expect(striped.for("item:1")).toBe(striped.at(striped.indexOf("item:1")));
});

test("different stripes do not wait for each other; all of them wait for every one", async () => {
  const { open } = rig();
  const { locks } = await open();
  const other = (await open()).locks.striped("s", 3);
  const striped = locks.striped("s", 3);
  const one = await striped.at(1).acquire();
  expect(
    await other
      .at(2)
      .tryAcquire()
      .then((hold) => hold?.release()),
  ).toBe(undefined);
  expect(await other.at(1).tryAcquire()).toBe(null);
  expect(await other.all().tryAcquire()).toBe(null);
  await one.release();
  const all = await other.all().acquire();
  expect(all.tokens.size).toBe(3);
  for (const index of [0, 1, 2]) expect(await striped.at(index).tryAcquire()).toBe(null);
  await all.release();
});

test("a total is split, walked and summed", async () => {
  const { open } = rig();
  const { locks } = await open();
  const striped = locks.striped("stock", 3);
  const parts = striped.split(8);
  expect(parts).toEqual([3, 3, 2]);
  expect(striped.split(0)).toEqual([0, 0, 0]);
  // Nine buyers of one key: they walk on when a stripe is empty, and the last one finds nothing.
  let sold = 0;
  for (let buyer = 0; buyer < 9; buyer += 1) {
    for (const { index, lock } of striped.walk("item")) {
      const bought = await lock.using(() => {
        if (parts[index] === 0) return false;
        parts[index] = (parts[index] ?? 0) - 1;
        return true;
      });
      if (bought) sold += 1;
      if (bought) break;
    }
  }
  expect(sold).toBe(8);
  expect(new Set([...striped.walk("item")].map(({ index }) => index))).toEqual(new Set([0, 1, 2]));
  expect(await striped.sum((index) => parts[index] ?? 0)).toBe(0);
  expect(await striped.sum(async () => 5)).toBe(15);
});

test("what cannot be striped is refused", async () => {
  const { open } = rig();
  const { locks } = await open();
  expect(() => locks.striped("s", 0)).toThrow(InvalidOptionError);
  expect(() => locks.striped("s", 1e9)).toThrow(InvalidOptionError);
  expect(() => locks.striped("s".repeat(512), 4)).toThrow(/bytes/);
  expect(() => locks.striped("s", 4).at(4)).toThrow(InvalidOptionError);
  expect(() => locks.striped("s", 4).for(7 as never)).toThrow(InvalidOptionError);
  expect(() => locks.striped("s", 4).for("\ud800")).toThrow(InvalidOptionError);
});

test("thousands of stripes are taken as one without a pause in between, and nest no deeper than one", async () => {
  // A second or two, where it took for ever; a lease for a machine that is busy with something else.
  const locks = await connect("memory:thousands of stripes", { leaseMs: 120_000 });
  const stock = locks.striped("s", 10_000);
  const left = stock.split(20_001);
  expect(await stock.sum((index) => left[index] ?? 0)).toBe(20_001);
  await locks.close();
}, 120_000);
