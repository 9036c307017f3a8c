import { setTimeout as sleep } from "node:timers/promises";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import { NO_FAULTS } from "../../src/testing/faults.js";
import { stressTest } from "../../src/testing/stress-test.js";
import { type PostgresServer, poolOf, query, restartPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { claimOf } from "./rig.js";

/** What is done to a PostgreSQL of any version while clients take locks on it. */

type Result = Awaited<ReturnType<typeof stressTest>>;

const LOAD = { leaseStepMs: 400, faults: { ...NO_FAULTS }, lateMs: 1000 };

/** The server ends connections, three at a time. `killed`: how many. */
export async function loadWhileKilled(url: string, rounds = 6): Promise<Result & { readonly killed: number }> {
  let killed = 0;
  const done = new AbortController();
  const killer = (async () => {
    while (!done.signal.aborted) {
      const text = `SELECT count(pg_terminate_backend(pid))::int AS n FROM (
        SELECT pid FROM pg_stat_activity WHERE application_name = 'victim' ORDER BY random() LIMIT 3) victims`;
      killed += Number((await query(url, text))[0]?.n);
      await sleep(150);
    }
  })();
  const pool = poolOf(url, { application_name: "victim", max: 6 });
  // Each time that it is opened a connection may be killed, and those that the pool has idle together with it.
  const open = (tries = 10): ReturnType<typeof postgresEngine> =>
    postgresEngine(pool, { schema: "killed" }).catch((error: unknown) => {
      if (tries === 1) throw error;
      return open(tries - 1);
    });
  try {
    const result = await stressTest({ ...LOAD, engine: () => open(), rounds }).finally(() => done.abort());
    await killer;
    return { ...result, killed };
  } finally {
    await pool.end();
  }
}

type Restarted = Result & { readonly left: number; readonly inTime: boolean };

/** The server is killed, and started again on its folder; it is stopped at the end. `left`: claims after it. `inTime`: before the load was over. */
export async function loadWhileRestarted(server: PostgresServer, rounds = 12): Promise<Restarted> {
  let own = server;
  const pool = poolOf(own.url, { max: 6 });
  try {
    let opened = 0;
    const running = stressTest({
      ...LOAD,
      engine: async () => {
        const engine = await postgresEngine(pool);
        opened += 1;
        return engine;
      },
      rounds,
    });
    let inTime = true;
    running.then(
      () => (inTime = false),
      () => (inTime = false),
    );
    await until("all clients are open", () => opened === 4, 60_000);
    await sleep(800);
    await own.running.end("SIGKILL");
    const killed = inTime;
    await sleep(300);
    own = await restartPostgres(own);
    const result = await running;
    const rows = await query(own.url, "SELECT count(*)::int AS n FROM holdfast.claim");
    return { ...result, left: Number(rows[0]?.n), inTime: killed };
  } finally {
    await pool.end();
    await own.running.stop();
  }
}

/** One connection, on which somebody else forgets all prepared statements: is ours used there before, and taken again after it? */
export async function pairsWhileForgotten(
  url: string,
): Promise<{ readonly prepared: number; readonly kinds: unknown[] }> {
  const pool = poolOf(url, { max: 1 });
  const engine = await postgresEngine(pool);
  const kinds: unknown[] = [];
  const pair = async (): Promise<void> => {
    const claim = claimOf("prepared");
    kinds.push((await engine.claim(claim)).kind, (await engine.renew([claim]))[0]?.kind, await engine.release(claim));
  };
  try {
    await pair();
    const { rows } = await pool.query("SELECT 1 FROM pg_prepared_statements WHERE name LIKE 'holdfast %'");
    await pool.query("DEALLOCATE ALL");
    await pair();
    return { prepared: rows.length, kinds };
  } finally {
    await engine[Symbol.asyncDispose]();
    await pool.end();
  }
}
