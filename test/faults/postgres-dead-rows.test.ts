import { Client, type Pool } from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ClaimRequest } from "../../src/core/engine.js";
import { type PostgresEngine, postgresEngine } from "../../src/engines/postgres/index.js";
import { type PostgresServer, poolOf, startPostgres } from "../servers/postgres.js";
import { claimOf } from "./rig.js";

/** So many claims came and went under one name, and nothing was vacuumed. */
const LEFT = 300;

let server: PostgresServer;
let pool: Pool;
let engine: PostgresEngine;
let operator: Client;
beforeAll(async () => {
  server = await startPostgres(["-c", "autovacuum=off"]);
  pool = poolOf(server.url);
  engine = await postgresEngine(pool);
  operator = new Client({ connectionString: server.url });
  await operator.connect();
  // As on a connection that has made a few calls.
  await operator.query("SET plan_cache_mode = force_generic_plan");
}, 120_000);
afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  await operator.end();
  await pool.end();
  await server.running.stop();
});

/** A name that was handed over again and again: who holds it, and who waits in order. */
async function worn(name: string, waiting: number): Promise<readonly ClaimRequest[]> {
  const claims = Array.from({ length: LEFT + 1 + waiting }, () => claimOf(name));
  for (const [at, claim] of claims.entries()) {
    await engine.claim(claim);
    const before = at > 0 && at <= LEFT ? claims[at - 1] : undefined;
    if (before !== undefined) expect(await engine.release({ ...before, tombstone: "never" })).toBe("released");
  }
  return claims.slice(LEFT);
}

/** What a statement answers, and how many entries of the indexes of claims it read, those of dead rows among them. */
async function entriesRead(text: string, values: unknown[]): Promise<{ answer: unknown; entries: number }> {
  await operator.query("BEGIN");
  const { rows } = await operator.query<{ answer: unknown }>(text, values);
  const read = await operator.query<{ entries: number }>(
    `SELECT sum(pg_stat_get_xact_tuples_returned(indexrelid))::int AS entries
     FROM pg_index WHERE indrelid = 'holdfast.claim'::regclass`,
  );
  await operator.query("COMMIT");
  return { answer: rows[0]?.answer, entries: read.rows[0]?.entries ?? Number.NaN };
}

const CLIENT = "(SELECT client FROM holdfast.claim LIMIT 1)";

test("a release that hands over does not read what left before", async () => {
  const [holder] = await worn("worn", 2);
  const { answer, entries } = await entriesRead(
    `SELECT holdfast.release('worn', $1, false, 60000, NULL, ${CLIENT}) AS answer`,
    [holder?.id],
  );
  expect(answer).toBe('"released"');
  expect(entries).toBeLessThan(LEFT / 10);
});

test("a run of releases does not read what left before", async () => {
  const [first, second, third] = await worn("worn by runs", 3);
  const requests = [
    ["worn by runs", first?.id, "-2", second?.id],
    ["worn by runs", second?.id, "-2", third?.id],
    ["worn by runs", third?.id, "0", null],
  ];
  const { answer, entries } = await entriesRead(
    `SELECT holdfast.batch($1::text[], '{}'::text[], 60000, ${CLIENT}, true) AS answer`,
    [requests],
  );
  expect(answer).toBe('["released","released","released"]');
  expect(entries).toBeLessThan(LEFT / 10);
});
