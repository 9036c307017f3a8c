import { afterAll, describe, expect, test } from "vitest";
import { memoryFence } from "../../src/fence/index.js";
import { KINDS, type Kind, stopServers } from "./kinds.js";
import { compareWithRule, showTwoSets } from "./rule.js";

/** `HOLDFAST_SEEDS` for more. */
const COUNT = Number(process.env.HOLDFAST_SEEDS ?? 25);

const memory: Kind = {
  name: "memory",
  exact: true,
  async open() {
    const values = new Map<string, string>();
    const fence = memoryFence();
    return {
      async write(name, value, token) {
        await fence.accept(name, token);
        values.set(name, value);
      },
      read: async (name) => values.get(name) ?? null,
      raise: (name, token) => fence.raise(name, token),
      close: async () => {},
    };
  },
};

afterAll(stopServers);

describe.each([memory, ...KINDS])("$name", (kind) => {
  test("one writer at a time is accepted or refused as the rule says", { timeout: 180_000 }, async () => {
    const resource = await kind.open();
    try {
      const { accepted, refused, raised } = await compareWithRule(resource, kind.exact, { from: 1, count: COUNT });
      expect(accepted).toBeGreaterThan(COUNT);
      expect(refused).toBeGreaterThan(COUNT / 4);
      expect(raised).toBeGreaterThan(0);
    } finally {
      await resource.close();
    }
  });

  const first = async (): Promise<void> => {
    const resource = await kind.open();
    try {
      await showTwoSets(resource);
      expect(await resource.read("sets")).toBe("c");
    } finally {
      await resource.close();
    }
  };
  if (kind.exact) test("of the sets of a grant the first that was shown counts", first);
});
