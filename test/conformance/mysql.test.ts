import type { Pool } from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { type MariadbServer, poolOf, startMariadb } from "../servers/mariadb.js";
import { judge } from "./judge.js";

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

describe("mysql, on MariaDB", () => {
  judge({ engine: () => mysqlEngine(pool), leaseStepMs: 1000 }, { timeoutMs: 120_000 });
  test("it pushes", async () => {
    const engine = await mysqlEngine(pool);
    expect(engine.guarantees).toEqual({
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
