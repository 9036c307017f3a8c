import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isMainThread } from "node:worker_threads";
import Database from "libsql";
import { onTestFinished } from "vitest";
import type { ClaimRequest, EngineEvent } from "../../src/core/engine.js";
import { nodeSqlite } from "../../src/engines/sqlite/drivers/node-sqlite.js";
import { type Machine, type SqliteDatabase, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

const TABLES = ["name", "claim", "tombstone", "cell", "operation"] as const;

const owner = { client: "c", host: "h", pid: 1 };

export const claimOf = (name: string, id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  name,
  id,
  units: 1,
  capacity: 1,
  leaseMs: 10_000,
  wait: true,
  owner,
  ...over,
});

/** Until the test ends. Mutants are judged in a worker, which cannot change it: there the usual mask has to do. */
export function setUmask(mask: number): void {
  if (!isMainThread) return;
  const before = process.umask(mask);
  onTestFinished(() => void process.umask(before));
}

/** One file in a folder of its own, any number of engines on it, one clock that moves only when told. */
export function sqliteRig() {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-unit-"));
  const path = join(folder, "locks.db");
  const clock = new FakeClock();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));

  function machine(over: Partial<Machine> = {}): Machine {
    return Object.assign(new ThisMachine(), { now: () => clock.now(), ...over });
  }

  async function open(over: Partial<Machine> = {}) {
    const engine = sqliteEngine(path, { clock, machine: machine(over) });
    onTestFinished(() => engine[Symbol.asyncDispose]());
    const events: EngineEvent[] = [];
    engine.listen((event) => events.push(event));
    await engine.ready();
    return { engine, events };
  }

  /** A connection of somebody else's, through the library that the engine chooses: two in one process do not exclude each other. */
  function raw(file = path): SqliteDatabase {
    const database = nodeSqlite()?.(file) ?? new Database(file);
    onTestFinished(() => void database.close());
    return database;
  }

  function rows(): Record<string, number> {
    const database = raw();
    const count = (table: string): number =>
      (database.prepare(`SELECT count(*) AS n FROM ${table}`).get() as { n: number }).n;
    return Object.fromEntries(TABLES.map((table) => [table, count(table)]));
  }

  return { folder, path, clock, machine, open, raw, rows };
}

export const EMPTY = Object.fromEntries(TABLES.map((table) => [table, 0]));
