import { afterAll, describe, expect, test } from "vitest";
import { KINDS, type Resource, stopServers } from "./kinds.js";
import { emptyTally, interleavings } from "./property.js";

/** In all 10,000 and more; `HOLDFAST_SEEDS` for each kind instead. Slow stores get fewer, so that a run on an idle machine takes about a minute. */
const COUNTS: Readonly<Record<string, number>> = {
  "postgres, table": 450,
  "postgres, column": 450,
  "mariadb, table": 450,
  "mariadb, column": 450,
  "sqlite, table": 1600,
  "sqlite, column": 1600,
  "redis, fencedSet": 2400,
  "redis, own script": 2400,
  etcd: 300,
  zookeeper: 300,
  files: 300,
  http: 500,
};
const AT_ONCE = 12;
const MUTANT_SEEDS = 300;
const asked = Number(process.env.HOLDFAST_SEEDS ?? 0);
const first = Number(process.env.HOLDFAST_FIRST_SEED ?? 1);

const total = emptyTally();

describe.each(KINDS)("$name", (kind) => {
  test("no interleaving of holders, permits, pauses and late writes gets a stale write accepted or a live holder refused", {
    timeout: asked === 0 ? 180_000 : 3_600_000,
  }, async () => {
    const resource = await kind.open();
    const count = asked || (COUNTS[kind.name] ?? 0);
    const startedAt = performance.now();
    try {
      const tally = await interleavings(resource, kind.exact, { from: first, count }, AT_ONCE);
      expect(tally.interleavings).toBe(count);
      expect(tally.refused).toBeGreaterThan(count / 4);
      expect(tally.deadYounger).toBeGreaterThan(0);
      for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += tally[key];
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      console.log(`${kind.name}: ${JSON.stringify(tally)} in ${seconds} s`);
    } finally {
      await resource.close();
    }
  });

  const mustFail = async (resource: Resource, exact: boolean, how: RegExp): Promise<void> => {
    try {
      const run = interleavings(resource, exact, { from: first, count: MUTANT_SEEDS }, 1);
      await expect(run).rejects.toThrow(how);
    } finally {
      await resource.close();
    }
  };

  test("without its compare the same interleavings fail", async () => {
    await mustFail(await kind.open(true), kind.exact, /^seed \d+: .*accepted/);
  });

  test("pitfall 55: without floors a live holder is refused", async () => {
    const resource = await kind.open();
    const write: Resource["write"] = (name, value, token) =>
      resource.write(name, value, typeof token === "number" ? token : token.token);
    await mustFail({ ...resource, write }, false, /^seed \d+: .*live holder of \d+ was refused/);
  });

  const withoutSets = async (): Promise<void> => {
    const resource = await kind.open();
    const write: Resource["write"] = (name, value, token) => {
      const { live: _, ...floored } = typeof token === "number" ? { token } : token;
      return resource.write(name, value, floored);
    };
    await mustFail({ ...resource, write }, true, /^seed \d+: .*dead before a newer accepted grant was made/);
  };
  if (kind.exact) test("with floors where exact sets were meant, a dead permit is accepted", withoutSets);
});

afterAll(async () => {
  await stopServers();
  console.log(`in all: ${JSON.stringify(total)}`);
  if (asked === 0 && total.interleavings > 0) expect(total.interleavings).toBeGreaterThanOrEqual(10_000);
});
