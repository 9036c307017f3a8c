import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { afterAll, expect, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import { type SqliteDatabase, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";
import { simulate } from "../../src/testing/simulate.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-simulation-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Seeds that once broke a rule: a waiting claim whose release was lost was checked for ever. */
const ONCE_BROKEN = [5400, 5617];

// HOLDFAST_SEEDS=2000 npx vitest run test/simulation/sqlite
test("random schedules break no rule on sqlite", { timeout: 3_600_000 }, async () => {
  const first = Number(process.env.HOLDFAST_FIRST_SEED ?? 1);
  const count = Number(process.env.HOLDFAST_SEEDS ?? 40);
  const broken: object[] = [];
  for (const seed of [...ONCE_BROKEN, ...Array.from({ length: count }, (_, n) => first + n)]) {
    const databases: SqliteDatabase[] = [];
    const engines: Engine[] = [];
    const openStore = (clock: FakeClock) => {
      const machine = Object.assign(new ThisMachine(), { now: () => clock.now() });
      const open = () => {
        const database: SqliteDatabase = new Database(join(folder, `${seed}.db`));
        databases.push(database);
        const engine = sqliteEngine(database, { clock, machine });
        engines.push(engine);
        return engine;
      };
      return { open };
    };
    const { violations } = await simulate(seed, openStore);
    if (violations.length > 0) broken.push({ seed, violations });
    for (const engine of engines) await engine[Symbol.asyncDispose]();
    for (const database of databases) database.close();
  }
  expect(broken).toEqual([]);
});
