import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type PostgresServer, query, startPostgres } from "../servers/postgres.js";
import { type RedisServer, startRedis } from "../servers/redis.js";
import { folderOf } from "../servers/tools.js";

const EXAMPLES = resolve(import.meta.dirname, "../../examples");

let postgres: PostgresServer;
let redis: readonly RedisServer[];
beforeAll(async () => {
  expect(existsSync(join(folderOf("jobs"), "node_modules"))).toBe(true);
  [postgres, redis] = await Promise.all([startPostgres(), Promise.all([startRedis(), startRedis()])]);
}, 120_000);
afterAll(async () => {
  await Promise.all([postgres, ...redis].map((server) => server.running.stop()));
});

async function database(name: string): Promise<string> {
  await query(postgres.url, `CREATE DATABASE ${name}`);
  return postgres.url.replace(/postgres$/, name);
}

type Ended = { readonly code: number | string | null | undefined; readonly stdout: string; readonly stderr: string };

function run(...words: string[]): Promise<Ended> {
  return new Promise((fulfil) => {
    execFile(
      process.execPath,
      [join(EXAMPLES, "run.mjs"), "jobs", ...words],
      { timeout: 200_000 },
      (error, stdout, stderr) => fulfil({ code: error === null ? 0 : error.code, stdout, stderr }),
    );
  });
}

const QUEUES: Readonly<Record<string, (lock: boolean) => Promise<string[]>>> = {
  BullMQ: async (lock) => ["--url", redis[Number(lock)]?.url ?? ""],
  "pg-boss": async (lock) => ["--url", await database(`boss_${lock}`)],
  "Graphile Worker": async (lock) => ["--graphile", "--url", await database(`graphile_${lock}`)],
};

describe("a job whose worker stalls and is handed on", { timeout: 240_000 }, () => {
  test.concurrent.each(Object.keys(QUEUES))("%s: the late run is refused, and told by its signal", async (name) => {
    const { code, stdout, stderr } = await run(...((await QUEUES[name]?.(true)) ?? []));
    expect({ code, stderr, stdout }).toMatchObject({ code: 0, stderr: "" });
    expect(stdout).toMatch(/bob +killed \(SIGKILL\)/);
    expect(stdout).toMatch(/ann +was refused: /);
    expect(stdout).toMatch(/ann +is told by its signal/);
    expect(stdout).toContain('the report says "written by cy"');
  });

  test.concurrent.each(Object.keys(QUEUES))("%s: without the lock the late run writes over the other", async (name) => {
    const { code, stdout, stderr } = await run("--no-lock", ...((await QUEUES[name]?.(false)) ?? []));
    expect({ code, stderr, stdout }).toMatchObject({ code: 1, stderr: "" });
    expect(stdout).toContain('the report says "written by ann"');
  });

  test("a store without a queue is refused at once", async () => {
    expect(await run()).toMatchObject({ code: 2, stderr: expect.stringContaining("BullMQ") as string });
  });
});
