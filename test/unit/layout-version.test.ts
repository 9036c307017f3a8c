import { expect, test } from "vitest";
import { EngineRefusedError } from "../../src/core/errors.js";
import { agreeOnVersion, FIRST_LAYOUT_VERSION, LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { MIGRATIONS as SQLITE } from "../../src/engines/sqlite/scripts.generated.js";

const PLACE = { kind: "redis", what: "the store", another: "a prefix" } as const;

/** A store that keeps one text; somebody else may come in between. */
function storeOf(text: string | null, inBetween: () => string | null = () => null) {
  const store = { text, writes: 0 };
  const agree = (): Promise<EngineRefusedError | null> =>
    agreeOnVersion(PLACE, async (seen, ours) => {
      store.text = inBetween() ?? store.text;
      if (store.text !== null && store.text !== seen) return store.text;
      store.text = ours;
      store.writes += 1;
      return ours;
    });
  return { store, agree };
}

/** As a program that speaks these. */
async function speaking<T>([lowest, highest]: readonly [number, number], work: () => Promise<T>): Promise<T> {
  const before = LAYOUT_VERSIONS.redis;
  LAYOUT_VERSIONS.redis = { lowest, highest };
  try {
    return await work();
  } finally {
    LAYOUT_VERSIONS.redis = before;
  }
}

test.each([
  { has: null, speaks: [2, 2], later: "2-2" },
  { has: "2-2", speaks: [2, 2], later: "2-2" },
  { has: "2-2", speaks: [2, 3], later: "2-3" },
  { has: "2-3", speaks: [2, 2], later: "2-3" },
  { has: "2-3", speaks: [3, 4], later: "3-4" },
  { has: "3-4", speaks: [2, 3], later: "3-4" },
] as const)(
  "a store of $has and a program that speaks $speaks fit, and the store has $later then",
  async ({ has, speaks, later }) => {
    const { store, agree } = storeOf(has);
    expect(await speaking(speaks, agree)).toBeNull();
    expect(store).toEqual({ text: later, writes: has === later ? 0 : 1 });
  },
);

test.each([
  {
    has: "3-4",
    speaks: [2, 2],
    says: /version 3 or 4, and this Holdfast, which is too old, speaks 2\. Update Holdfast here, or .* a prefix of its own/,
  },
  { has: "4-5", speaks: [2, 3], says: /too old, speaks 2 or 3/ },
  {
    has: "2-2",
    speaks: [3, 4],
    says: /version 2, and this Holdfast, which is too new, speaks 3 or 4\. .* speaks 2 and 3, which takes the data along/,
  },
  {
    has: "1-1",
    speaks: [2, 2],
    says: /too new, speaks 2\. It was made by 0\.1\.0, which was never published: stop all programs/,
  },
  {
    has: "invoices",
    speaks: [2, 2],
    says: /layout version of the store is "invoices"\. Another program uses it; give this one a prefix/,
  },
] as const)(
  "a store of $has refuses a program that speaks $speaks, with what to do, and is not touched",
  async ({ has, speaks, says }) => {
    const { store, agree } = storeOf(has);
    const refusal = await speaking(speaks, agree);
    expect(refusal).toBeInstanceOf(EngineRefusedError);
    expect(refusal?.message).toMatch(says);
    expect(store).toEqual({ text: has, writes: 0 });
  },
);

test("nobody writes an older version over a newer one that came in between", async () => {
  const others = ["2-2", "3-4"];
  const { store, agree } = storeOf(null, () => others.shift() ?? null);
  expect(await speaking([2, 3], agree)).toBeNull();
  expect(store).toEqual({ text: "3-4", writes: 0 });
});

test("a store whose version changes again and again is given up", async () => {
  let older = 0;
  const { agree } = storeOf(null, () => `2-${2 + ((older += 1) % 2)}`);
  await expect(speaking([2, 5], agree)).rejects.toThrow(/again and again/);
});

test("the version of SQLite's layout is the number of its last migration", () => {
  expect(LAYOUT_VERSIONS.sqlite.highest).toBe(FIRST_LAYOUT_VERSION + SQLITE.length - 1);
});
