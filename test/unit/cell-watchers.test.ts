import { expect, test } from "vitest";
import type { Cell } from "../../src/core/cells.js";
import { CellWatchers } from "../../src/engine-kit/cell-watchers.js";

const cell = (version: number): Cell => ({ version, value: `value ${version}` });

/** Watchers, which cells began and ceased to be watched, and a listener that notes what it is told. */
function watching() {
  const hooks: string[] = [];
  const told: string[] = [];
  const watchers = new CellWatchers({
    first: (name) => hooks.push(`first ${name}`),
    last: (name) => hooks.push(`last ${name}`),
  });
  const listener =
    (who: string) =>
    ({ version }: Cell): void =>
      void told.push(`${who} ${version}`);
  return { watchers, hooks, told, listener };
}

test("each version of a cell is told once to each of its listeners, after the call that tells", async () => {
  const { watchers, told, listener } = watching();
  watchers.add("one", listener("a"));
  watchers.add("one", listener("b"));
  watchers.add("other", listener("c"));
  watchers.tell("one", cell(1));
  expect(told).toEqual([]);
  watchers.tell("one", cell(1));
  watchers.tell("nobody", cell(5));
  await Promise.resolve();
  expect(told).toEqual(["a 1", "b 1"]);
  watchers.tell("one", { version: 0, value: null });
  watchers.tell("one", cell(2));
  await Promise.resolve();
  expect(told.slice(2)).toEqual(["a 0", "b 0", "a 2", "b 2"]);
});

test("where the store reads at once, what the first read finds is no change", async () => {
  const { watchers, told, listener } = watching();
  watchers.add("one", listener("a"));
  watchers.tellChange("one", cell(1));
  watchers.tellChange("one", cell(1));
  watchers.tellChange("one", cell(2));
  await Promise.resolve();
  expect(told).toEqual(["a 2"]);
});

test("one listener may watch twice and leave once; whoever left is not told", async () => {
  const { watchers, hooks, told, listener } = watching();
  const same = listener("a");
  const leave = watchers.add("one", same);
  watchers.add("one", same);
  leave();
  leave();
  watchers.tell("one", cell(1));
  await Promise.resolve();
  expect(told).toEqual(["a 1"]);
  expect(hooks).toEqual(["first one"]);
  const leaveOther = watchers.add("other", listener("b"));
  watchers.tell("other", cell(1));
  leaveOther();
  await Promise.resolve();
  expect(told).toEqual(["a 1"]);
  expect(hooks).toEqual(["first one", "first other", "last other"]);
  expect(watchers.names).toEqual(["one"]);
});

test("a watch that ended with all others does not end the next watch of its cell", async () => {
  const { watchers, hooks, told, listener } = watching();
  const leave = watchers.add("one", listener("a"));
  watchers.tell("one", cell(1));
  watchers.clear();
  expect(watchers.size).toBe(0);
  watchers.add("one", listener("b"));
  leave();
  watchers.tell("one", cell(1));
  await Promise.resolve();
  expect(told, "a new watch has been told nothing").toEqual(["b 1"]);
  expect(hooks).toEqual(["first one", "first one"]);
});
