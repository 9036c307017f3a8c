import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, test } from "vitest";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("sqlite, in real time", () => {
  const engine = async () => sqliteEngine(join(folder, "real.db"));
  conformance((name, run) => test.concurrent(name, run), { engine, leaseStepMs: 300 });
});
