import { Client, type Pool } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { type PostgresServer, poolOf, startPostgres } from "../servers/postgres.js";
import { judge } from "./judge.js";

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres();
}, 120_000);
afterAll(() => server.running.stop());

const EXTENT = { timeoutMs: 120_000 };

describe("postgres, a pool", () => {
  let pool: Pool;
  beforeAll(() => {
    pool = poolOf(server.url, { max: 8 });
  });
  afterAll(() => pool.end());
  judge({ engine: () => postgresEngine(pool), leaseStepMs: 1000 }, EXTENT);
  test("it pushes", async () => {
    const engine = await postgresEngine(pool);
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

/** A client of its own for each engine, which ends with it. */
async function clientEngine() {
  const client = new Client({ connectionString: server.url });
  await client.connect();
  const engine = await postgresEngine(client);
  const dispose = engine[Symbol.asyncDispose].bind(engine);
  let ending: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    await dispose();
    await client.end();
  };
  engine[Symbol.asyncDispose] = () => (ending ??= end());
  return engine;
}

describe("postgres, a single connection", () => {
  judge({ engine: clientEngine, leaseStepMs: 1000 }, EXTENT);
});

describe("postgres, where transactions are serializable", () => {
  let pool: Pool;
  beforeAll(() => {
    pool = poolOf(server.url, { max: 4, options: "-c default_transaction_isolation=serializable" });
  });
  afterAll(() => pool.end());
  const engine = () => postgresEngine(pool, { schema: "strict" });
  test("random operations are answered as by the reference", { timeout: 60_000 }, () =>
    // Leases either last the whole run or are waited for: they may be short.
    compareWithReference({ engine, leaseStepMs: 150, runs: 15 }),
  );
});
