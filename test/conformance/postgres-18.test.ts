import type { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { EngineEvent } from "../../src/core/engine.js";
import { openPostgres, postgresEngine } from "../../src/engines/postgres/index.js";
import { compareWithReference } from "../../src/testing/compare.js";
import { loadWhileKilled, loadWhileRestarted, pairsWhileForgotten } from "../faults/postgres-load.js";
import { claimOf } from "../faults/rig.js";
import { type PostgresServer, poolOf, query } from "../servers/postgres.js";
import { startPostgres18 } from "../servers/postgres-18.js";
import { until } from "../servers/process.js";
import { judge } from "./judge.js";

// What may differ from Debian's 15. With HOLDFAST_LONG=1 the whole suite, and all faults by HOLDFAST_POSTGRES_BIN: CONTRIBUTING.md.
const WHOLE = process.env.HOLDFAST_LONG === "1";
const timeout = 120_000;

let server: PostgresServer;
let pool: Pool;
beforeAll(async () => {
  server = await startPostgres18();
  pool = poolOf(server.url, { max: 8 });
}, timeout);
afterAll(async () => {
  await pool?.end();
  await server?.running.stop();
});

const engine = () => postgresEngine(pool);

test("it is another version", async () => {
  const [row] = await query(server.url, "SELECT current_setting('server_version_num')::int / 10000 AS version");
  expect(row?.version).toBe(18);
});

describe("postgres 18, a pool", () => {
  if (WHOLE) judge({ engine, leaseStepMs: 1000 }, { timeoutMs: timeout });
  else {
    test.concurrent("random operations are answered as by the reference", { timeout }, () =>
      // Leases either last the whole run or are waited for: they may be short.
      compareWithReference({ engine, leaseStepMs: 300, runs: 2, withinMs: timeout * 0.8 }),
    );
  }

  test.concurrent("connections killed by the server under load: nothing overlaps", { timeout }, async ({ expect }) => {
    const { violations, killed } = await loadWhileKilled(server.url, ...(WHOLE ? [] : [2]));
    expect(violations).toEqual([]);
    expect(killed, "somebody was killed").toBeGreaterThan(0);
  });

  test.concurrent("the server killed and started again under load: locking goes on", { timeout }, async ({
    expect,
  }) => {
    const { violations, left, inTime } = await loadWhileRestarted(await startPostgres18(), ...(WHOLE ? [] : [4]));
    expect(violations).toEqual([]);
    expect({ left, inTime }).toEqual({ left: 0, inTime: true });
  });
});

test("a waiter of another client is told by a notification, also after the connection that listens was ended", async () => {
  const [one, two] = [await openPostgres(server.url), await openPostgres(server.url)];
  onTestFinished(async () => void (await Promise.all([one, two].map((each) => each[Symbol.asyncDispose]()))));
  expect(two.guarantees).toMatchObject({
    wake: "push",
    order: "fifo",
    exclusion: "single-server",
    survivesRestart: true,
  });
  const events: EngineEvent[] = [];
  two.listen((event) => events.push(event));
  const handOver = async (name: string): Promise<void> => {
    const [holder, waiter] = [claimOf(name), claimOf(name)];
    expect((await one.claim(holder)).kind).toBe("granted");
    expect((await two.claim(waiter)).kind).toBe("queued");
    expect(await one.release(holder)).toBe("released");
    await until("it is pushed", () => events.some((event) => event.kind === "granted" && event.id === waiter.id));
    expect(await two.release(waiter)).toBe("released");
  };
  await handOver("told");
  const text = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'";
  expect((await query(server.url, text)).length).toBeGreaterThan(0);
  await until("it listens again", () => events.some(({ kind }) => kind === "wake"));
  await handOver("told again");
});

test("prepared statements are used, and a connection that has forgotten them is no obstacle", async () => {
  const { prepared, kinds } = await pairsWhileForgotten(server.url);
  expect(prepared).toBeGreaterThan(0);
  expect(kinds).toEqual(["granted", "granted", "released", "granted", "granted", "released"]);
});
