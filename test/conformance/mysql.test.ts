import type { Pool } from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { conformance } from "../../src/testing/conformance/index.js";
import { type MariadbServer, poolOf, startMariadb } from "../servers/mariadb.js";

let server: MariadbServer;
let pool: Pool;
beforeAll(async () => {
  server = await startMariadb();
  // Each engine keeps two connections to listen.
  pool = poolOf(server.url, { connectionLimit: 200 });
}, 120_000);
afterAll(async () => {
  await pool.end();
  await server.running.stop();
});

/** Leases either last the whole run or are waited for: they may be short. */
const RANDOM = { runs: 15, leaseStepMs: 150 };
const concurrent = (name: string, run: () => Promise<void>): void => test.concurrent(name, run, 60_000);

describe("mysql, on MariaDB", () => {
  const setting = { engine: () => mysqlEngine(pool), leaseStepMs: 1000 };
  conformance(concurrent, setting);
  concurrent("random operations are answered as by the reference", () =>
    compareWithReference({ ...setting, ...RANDOM }),
  );
  test("it pushes", async () => {
    const engine = await mysqlEngine(pool);
    expect(engine.promises).toEqual({
      exclusion: "single-server",
      token: "monotonic",
      order: "fifo",
      wake: "push",
      crashRelease: "lease",
      survivesRestart: true,
    });
    await engine[Symbol.asyncDispose]();
  });
});
