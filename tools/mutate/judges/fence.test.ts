import { afterAll, describe, expect, test } from "vitest";
import { KINDS, stopServers } from "../../../test/fence/kinds.js";
import { interleavings } from "../../../test/fence/property.js";
import { compareWithRule, showTwoSets } from "../../../test/fence/rule.js";

/** The interleavings of test/fence/property.test.ts and the rule of rule.test.ts, on what needs no server. */
const IN_PROCESS = new Set(["sqlite, table", "sqlite, column", "files", "http"]);

afterAll(stopServers);

describe.each(KINDS.filter(({ name }) => IN_PROCESS.has(name)))("$name", (kind) => {
  test("no interleaving gets a stale write accepted or a live holder refused", async () => {
    const resource = await kind.open();
    const count = Number(process.env.HOLDFAST_SEEDS ?? 40);
    try {
      const tally = await interleavings(resource, kind.exact, { from: 1, count }, 12);
      expect(tally.interleavings).toBe(count);
    } finally {
      await resource.close();
    }
  });

  test("one writer at a time is accepted or refused as the rule says", async () => {
    const resource = await kind.open();
    const count = Number(process.env.HOLDFAST_SEEDS ?? 40);
    try {
      expect((await compareWithRule(resource, kind.exact, { from: 1, count })).refused).toBeGreaterThan(count / 4);
      if (kind.exact) await showTwoSets(resource);
    } finally {
      await resource.close();
    }
  });
});
