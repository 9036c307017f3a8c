import type { Pool, PoolConnection, PoolOptions } from "mysql2/promise";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { InvalidOptionError, StaleTokenError } from "../../src/core/errors.js";
import { forUpdate, mysqlEngine, migrationSql as mysqlMigration, optimistic } from "../../src/engines/mysql/index.js";
import { migrationSql, forUpdate as pgForUpdate, postgresEngine } from "../../src/engines/postgres/index.js";
import { fenceTable, mysqlFence, postgresFence } from "../../src/fence/index.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";
import { claimOf, states } from "./rig.js";

/** Names are data: no quoting rule, no character set and no replacement pattern makes anything else of them. */

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

const SCHEMAS = ["a$$b", "_$$", "a$1b", "x$holdfast_step$y", "y$holdfast_body$", "z$holdfast_migration$", "A-b$$"];
const EVIL = ["'", "`", '"', "%s", "$$", "$1", "\\", "r', 1) -- ", 'r"."; DROP TABLE x', "?", ":name", "{}"];

describe("MariaDB", () => {
  let server: maria.MariadbServer;
  beforeAll(async () => {
    server = await maria.startMariadb();
    await maria.query(server.url, `CREATE DATABASE shop; USE shop; ${fenceTable("mysql")}`);
  }, 120_000);
  afterAll(() => server.running.stop());

  function pooled(options: PoolOptions = {}, setting?: string): Pool {
    const pool = maria.poolOf(`${server.url}/shop`, { connectionLimit: 6, ...options });
    cleanups.push(() => pool.end());
    if (setting !== undefined)
      pool.on("connection", (connection: PoolConnection) => void connection.query(`SET SESSION ${setting}`));
    return pool;
  }

  test("a fence cannot be lowered by a resource's name where backslashes are no escapes", async () => {
    const [plain, odd] = [mysqlFence(pooled()), mysqlFence(pooled({}, "sql_mode = 'NO_BACKSLASH_ESCAPES'"))];
    await plain.raise("r\\", 1000);
    await odd.accept("r', 1) ON DUPLICATE KEY UPDATE fence = 0 -- ", 5).catch(() => {});
    await expect(plain.accept("r\\", 7)).rejects.toThrow(StaleTokenError);
    await expect(odd.accept("r\\", 7)).rejects.toThrow(StaleTokenError);
  });

  test("a resource is the same on connections with different character sets", async () => {
    const [wide, narrow] = [mysqlFence(pooled({ charset: "utf8mb4" })), mysqlFence(pooled({ charset: "latin1" }))];
    await wide.raise("café", 1000);
    await expect(narrow.accept("café", 7)).rejects.toThrow(StaleTokenError);
    await narrow.accept("café", 1001);
    await expect(wide.accept("café", 1000)).rejects.toThrow(StaleTokenError);
    const rows = await maria.query(
      `${server.url}/shop`,
      "SELECT HEX(resource) AS hex FROM holdfast_fence WHERE fence = 1001",
    );
    expect(rows).toEqual([{ hex: Buffer.from("café").toString("hex").toUpperCase() }]);
  });

  test.each(["utf16", "ucs2", "utf32"])("a list of live tokens is kept in a database of %s", async (charset) => {
    await maria.query(
      server.url,
      `CREATE DATABASE ${charset} CHARACTER SET ${charset}; USE ${charset}; ${fenceTable("mysql")}`,
    );
    const pool = maria.poolOf(`${server.url}/${charset}`);
    cleanups.push(() => pool.end());
    const fence = mysqlFence(pool);
    await fence.accept("r", { token: 12, floor: 5, live: [5, 12] });
    await fence.accept("r", { token: 5, floor: 5, live: [5] });
    await expect(fence.accept("r", { token: 7, floor: 5, live: [5, 7] })).rejects.toThrow(StaleTokenError);
  });

  test("row helpers find only the row that was asked for, whatever the key holds", async () => {
    await maria.query(
      `${server.url}/shop`,
      "CREATE TABLE person (name VARCHAR(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci PRIMARY KEY, note TEXT, version INT NOT NULL DEFAULT 0); INSERT INTO person (name) VALUES ('Ann'), ('café')",
    );
    const pool = pooled({}, "sql_mode = 'NO_BACKSLASH_ESCAPES'");
    const row = (name: unknown) => ({ table: "person", key: { name } });
    expect(await forUpdate(pool, row("' OR 1 = 1 -- "))).toBeNull();
    expect(await optimistic(pool, row("\\' OR 1 = 1 -- "), () => ({ note: "x" }))).toEqual({ kind: "missing" });
    await expect(forUpdate(pool, row({ name: 1 }))).rejects.toThrow(InvalidOptionError);
    await expect(forUpdate(pool, row(["Ann"]))).rejects.toThrow(InvalidOptionError);
    // Compared as the column is: letters in either case.
    expect(await forUpdate(pool, row("ANN"))).toMatchObject({ name: "Ann" });
    for (const note of EVIL) {
      expect(await optimistic(pool, row("café"), () => ({ note }))).toMatchObject({ kind: "written" });
      expect(await forUpdate(pool, row("café"))).toMatchObject({ note });
    }
    for (const table of EVIL)
      await expect(forUpdate(pool, { table, key: { name: 1 } })).rejects.toThrow(/exist|Incorrect/);
    for (const column of EVIL) {
      await expect(forUpdate(pool, { table: "person", key: { [column]: 1 } })).rejects.toThrow(
        /Unknown column|Incorrect/,
      );
    }
    expect(await maria.query(`${server.url}/shop`, "SELECT name, version FROM person ORDER BY name")).toEqual([
      { name: "Ann", version: 0 },
      { name: "café", version: EVIL.length },
    ]);
  });

  test.each(SCHEMAS)("a schema may be called %s", async (schema) => {
    const engine = await mysqlEngine(pooled({ connectionLimit: 6 }), { schema });
    const claim = claimOf("n");
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    expect(await states(engine)).toMatchObject([{ name: "n" }]);
    expect(await engine.release(claim)).toBe("released");
    await engine[Symbol.asyncDispose]();
    expect(mysqlMigration(schema)).toContain(`\`${schema}\`.claim`);
  });
});

describe("PostgreSQL", () => {
  let server: postgres.PostgresServer;
  beforeAll(async () => {
    server = await postgres.startPostgres();
  }, 120_000);
  afterAll(() => server.running.stop());

  test.each(SCHEMAS)("a schema may be called %s", async (schema) => {
    const pool = postgres.poolOf(server.url);
    cleanups.push(() => pool.end());
    const engine = await postgresEngine(pool, { schema });
    const claim = claimOf("n");
    expect(await engine.claim(claim)).toMatchObject({ kind: "granted" });
    expect(await engine.renew([claim])).toMatchObject([{ kind: "granted" }]);
    expect(await states(engine)).toMatchObject([{ name: "n" }]);
    expect(await engine.release(claim)).toBe("released");
    await engine[Symbol.asyncDispose]();
    const made = await postgres.query(server.url, "SELECT count(*)::int AS n FROM pg_namespace WHERE nspname = $1", [
      schema,
    ]);
    expect(made).toEqual([{ n: 1 }]);
    // By hand as well, and a second time.
    await postgres.query(server.url, migrationSql(schema));
  });

  test("a fence and the row helpers take names as they are", async () => {
    await postgres.query(server.url, `${fenceTable("postgres")}; CREATE TABLE person (name text, version int)`);
    const pool = postgres.poolOf(server.url, { options: "-c standard_conforming_strings=off" });
    cleanups.push(() => pool.end());
    const fence = postgresFence(pool);
    for (const resource of [...EVIL, "café"]) {
      await fence.raise(resource, 1000);
      await expect(fence.accept(resource, 7)).rejects.toThrow(StaleTokenError);
    }
    const rows = await postgres.query(server.url, "SELECT resource FROM holdfast_fence");
    expect(new Set(rows.map(({ resource }) => resource))).toEqual(new Set([...EVIL, "café"]));
    for (const table of EVIL)
      await expect(pgForUpdate(pool, { table, key: { name: "x" } })).rejects.toThrow(/exist|zero-length/);
    for (const value of EVIL) expect(await pgForUpdate(pool, { table: "person", key: { name: value } })).toBeNull();
  });
});
