import { Client } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import type { Engine } from "../../src/core/engine.js";
import { mysqlEngine } from "../../src/engines/mysql/index.js";
import { postgresEngine } from "../../src/engines/postgres/index.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { until } from "../servers/process.js";

/** A client handed in is never closed by us, one that we made always is: after a close, and when opening fails. */

const MISSING = { schema: "missing", migrate: false };

/** Opened and closed, and refused. */
async function used(open: (options: object) => Promise<Engine>): Promise<void> {
  await (await open({}))[Symbol.asyncDispose]();
  await expect(open(MISSING)).rejects.toThrow(/migrationSql/);
}

describe("PostgreSQL", () => {
  let server: postgres.PostgresServer;
  beforeAll(async () => {
    server = await postgres.startPostgres();
  }, 120_000);
  afterAll(() => server.running.stop());

  test("a pool that was handed in works afterwards", async () => {
    const pool = postgres.poolOf(server.url);
    await used((options) => postgresEngine(pool, options));
    expect((await pool.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
    await pool.end();
  });

  test("a client that was handed in works afterwards", async () => {
    const client = new Client(server.url);
    await client.connect();
    await used((options) => postgresEngine(client, options));
    expect((await client.query("SELECT 1 AS one")).rows).toEqual([{ one: 1 }]);
    await client.end();
  });

  test("of a pool that we made no connection is left", async () => {
    await (await connect(server.url)).close();
    await expect(connect(`${server.url}?schema=missing&migrate=false`)).rejects.toThrow(/migrationSql/);
    const ours = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'";
    await until("no connection is left", async () => (await postgres.query(server.url, ours)).length === 0);
  });
});

describe("MariaDB", () => {
  let server: maria.MariadbServer;
  beforeAll(async () => {
    server = await maria.startMariadb();
  }, 120_000);
  afterAll(() => server.running.stop());

  test("a pool that was handed in works afterwards", async () => {
    const pool = maria.poolOf(server.url);
    await used((options) => mysqlEngine(pool, options));
    expect((await pool.query("SELECT 1 AS one"))[0]).toEqual([{ one: 1 }]);
    await pool.end();
  });

  test("of a pool that we made no connection is left", async () => {
    await maria.query(server.url, "CREATE USER ours; GRANT ALL ON *.* TO ours");
    const url = server.url.replace("root@", "ours@");
    await (await connect(url)).close();
    await expect(connect(`${url}?schema=missing&migrate=false`)).rejects.toThrow(/migrationSql/);
    const ours = "SELECT id FROM information_schema.processlist WHERE user = 'ours'";
    await until("no connection is left", async () => (await maria.query(server.url, ours)).length === 0);
  });
});
