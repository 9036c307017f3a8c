import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { startMariadb } from "../servers/mariadb.js";
import { startPostgres } from "../servers/postgres.js";

const ROOT = resolve(import.meta.dirname, "../..");
const RUN = resolve(ROOT, "examples/flash-sale/run.mjs");

/** The rows of the printed table: name, sold, left, oversold. */
async function sale(...words: string[]): Promise<{ name: string; sold: number; left: number; oversold: number }[]> {
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [RUN, ...words], {
    cwd: ROOT,
    timeout: 110_000,
  });
  // The progress line is for people at a terminal.
  expect(stderr).toBe("");
  const rows = stdout.matchAll(/^(\w[\w ]*?) {2,}(\d+) +(-?\d+) +(\d+) +[\d.]+ +\d+ +\d+ ms +\d+ ms$/gm);
  return [...rows].map(([, name = "", sold, left, oversold]) => ({
    name,
    sold: Number(sold),
    left: Number(left),
    oversold: Number(oversold),
  }));
}

/** Without a lock more is sold than there is; each way with one sells exactly what there is. */
async function expectEachWay(...words: string[]): Promise<void> {
  const exact = { sold: 100, left: 0, oversold: 0 };
  const [none, ...others] = await sale(...words);
  expect(none?.name).toBe("no lock");
  expect(none?.oversold).toBeGreaterThan(0);
  expect(others).toEqual(["mutex", "optimistic", "pessimistic", "roll back"].map((name) => ({ name, ...exact })));
}

describe("the flash sale", { timeout: 240_000 }, () => {
  test("each way with a lock sells exactly what there is, and a chart is drawn", async () => {
    await expectEachWay();
    expect(readFileSync(resolve(ROOT, "examples/flash-sale/out/flash-sale.svg"), "utf8")).toMatch(/^<svg /);
  });

  test("without a lock it oversells in 20 of 20 runs", async () => {
    const rows = await sale("--variant", "no lock", "--runs", "20");
    expect(rows).toHaveLength(20);
    expect(rows.filter(({ oversold }) => oversold > 0)).toHaveLength(20);
  });

  test.each([
    ["PostgreSQL", startPostgres],
    ["MariaDB", startMariadb],
  ])("the same with the shop and the locks in %s", { timeout: 480_000 }, async (_, start) => {
    const server = await start();
    try {
      await expectEachWay("--url", server.url);
    } finally {
      await server.running.stop();
    }
  });

  test("what it cannot sell on is said at once", async () => {
    await expect(sale("--url", "memory:")).rejects.toMatchObject({ code: 2 });
  });
});
