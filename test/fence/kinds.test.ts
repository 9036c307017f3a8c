import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type FenceToken, InvalidTokenError, StaleTokenError } from "../../src/fence/index.js";
import { KINDS, type Resource, stopServers } from "./kinds.js";

const FAR_AHEAD = (Date.now() + 48 * 3_600_000) * 1000;

afterAll(stopServers);

describe.each(KINDS)("$name", (kind) => {
  let resource: Resource;
  beforeAll(async () => {
    resource = await kind.open();
  });
  afterAll(() => resource?.close());

  const refused = async (name: string, token: FenceToken): Promise<void> => {
    const before = await resource.read(name);
    await expect(resource.write(name, "stale", token)).rejects.toThrow(StaleTokenError);
    expect(await resource.read(name)).toBe(before);
  };

  test("a token writes as often as it likes, until a newer one has written", async () => {
    await resource.write("often", "a", 5);
    await resource.write("often", "a", 5);
    await resource.write("often", "b", 5);
    await resource.write("often", "c", 6);
    expect(await resource.read("often")).toBe("c");
    await refused("often", 5);
    await resource.write("often", "d", 6);
    expect(await resource.read("often")).toBe("d");
    await resource.write("another", "e", 1);
    expect(await resource.read("another")).toBe("e");
  });

  test("tokens as large as microseconds are told apart by one", async () => {
    const now = Date.now() * 1000 + 1;
    await resource.write("large", "a", now);
    await refused("large", now - 1);
    await resource.write("large", "b", now + 1);
    await refused("large", now);
  });

  test("pitfall 55: permits that live at the same time do not shut each other out, and a floor never falls", async () => {
    const permits = [5, 6, 7].map((token) => ({ token, floor: 5 }));
    for (const permit of [...permits, ...permits.toReversed()]) await resource.write("permits", "a", permit);
    await resource.write("permits", "b", { token: 8, floor: 6 });
    await resource.write("permits", "c", { token: 7, floor: 5 });
    await refused("permits", { token: 5, floor: 5 });
    await resource.write("permits", "d", { token: 9, floor: 9 });
    await refused("permits", { token: 8, floor: 6 });
  });

  test("an older token is shut out by a raise, a newer one is not", async () => {
    await resource.raise("raised", 7);
    await refused("raised", 6);
    await resource.write("raised", "a", 7);
    await resource.raise("raised", 3);
    await refused("raised", 6);
    await resource.write("raised", "b", 7);
    expect(await resource.read("raised")).toBe("b");
  });

  const exactSet = async (): Promise<void> => {
    await resource.write("exact", "a", { token: 7, floor: 5, live: [5, 6, 7] });
    await resource.write("exact", "b", { token: 6, floor: 5, live: [5, 6] });
    await resource.write("exact", "c", { token: 8, floor: 5, live: [5, 8] });
    await refused("exact", { token: 6, floor: 5, live: [5, 6] });
    await refused("exact", { token: 7, floor: 5, live: [5, 6, 7] });
    await resource.write("exact", "d", { token: 5, floor: 5, live: [5] });
    await resource.raise("exact", 6);
    await refused("exact", { token: 5, floor: 5, live: [5] });
    await resource.write("exact", "e", { token: 8, floor: 5, live: [5, 8] });
    expect(await resource.read("exact")).toBe("e");
  };
  const noExactSet = async (): Promise<void> => {
    await expect(resource.write("exact", "a", { token: 7, floor: 5, live: [5, 7] })).rejects.toThrow(/live tokens/);
    expect(await resource.read("exact")).toBeNull();
  };
  if (kind.exact) test("an exact set shuts out a dead permit between live ones", exactSet);
  else test("a hold with an exact set is not taken for one with a floor", noExactSet);

  test.each<[string, unknown]>([
    ["none", undefined],
    ["null", null],
    ["a text", "5"],
    ["zero", 0],
    ["negative", -5],
    ["a fraction", 5.5],
    ["NaN", Number.NaN],
    ["infinite", Infinity],
    ["unsafe", 2 ** 53],
    ["far ahead of the clock", FAR_AHEAD],
    ["a floor above it", { token: 5, floor: 6 }],
    ["a floor below one", { token: 5, floor: 0 }],
    ["a set without it", { token: 5, floor: 4, live: [4, 6] }],
    ["a set with other things", { token: 5, floor: 4, live: ["4", 5] }],
  ])("a bad token is refused and nothing is written: %s", async (title, token) => {
    const name = `bad ${title}`.replaceAll(" ", "-");
    await expect(resource.write(name, "bad", token as FenceToken)).rejects.toThrow(InvalidTokenError);
    await expect(resource.raise(name, token as number)).rejects.toThrow(InvalidTokenError);
    expect(await resource.read(name)).toBeNull();
    await resource.write(name, "good", 1);
  });

  test("of many that write at once the highest stays, and none that came after it was older", async () => {
    const tokens = Array.from({ length: 24 }, (_, n) => 1 + ((n * 7) % 24));
    const outcomes = await Promise.allSettled(tokens.map((token) => resource.write("race", String(token), token)));
    expect(await resource.read("race")).toBe("24");
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") expect(outcome.reason).toBeInstanceOf(StaleTokenError);
    }
    expect(outcomes[tokens.indexOf(24)]?.status).toBe("fulfilled");
  });
});
