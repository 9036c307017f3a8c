import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe } from "vitest";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { judge } from "./judge.js";

const folder = mkdtempSync(join(tmpdir(), "holdfast-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const sqlite = process.versions.node.startsWith("20.") ? "libsql" : "node:sqlite";

describe(`sqlite through ${sqlite}, in real time`, () => {
  const engine = async () => sqliteEngine(join(folder, "real.db"));
  const setting = { engine, leaseStepMs: 800 };
  judge(setting);
});
