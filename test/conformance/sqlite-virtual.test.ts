import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, onTestFinished, test } from "vitest";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { virtual } from "../virtual/sqlite.js";
import { deadWaiterIsNotTold } from "./dead-waiter.js";
import { overAtItsEnd } from "./lease-end.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sqlite = process.versions.node.startsWith("20.") ? "libsql" : "node:sqlite";

describe(`sqlite through ${sqlite}, by a fake clock`, () => {
  const clock = new FakeClock();
  const machine = Object.assign(new ThisMachine(), { now: () => clock.now() });
  const engine = async () => {
    const made = sqliteEngine(join(folder, "fake.db"), { clock, machine });
    await made.ready();
    return made;
  };
  const setting = { engine, leaseStepMs: 1000, clock };
  conformance(test, setting);
  test("random operations are answered as by the reference", async () => {
    const { setting: timed, close } = await virtual();
    onTestFinished(close);
    await compareWithReference({ ...timed, runs: 60 });
  });
  test("a dead waiter is not told that a lowered capacity dropped it", async () => {
    const { setting: timed, close } = await virtual();
    onTestFinished(close);
    await deadWaiterIsNotTold(timed);
  });
  test("a lease is over at its very end, for whatever is asked then", async () => {
    const { setting: timed, close } = await virtual();
    onTestFinished(close);
    await overAtItsEnd(timed);
  });
});
