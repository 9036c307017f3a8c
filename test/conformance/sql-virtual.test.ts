import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { bothWays } from "../virtual/both.js";
import * as mysql from "../virtual/mysql.js";
import * as postgres from "../virtual/postgres.js";

describe("postgres, in virtual time", () => {
  let store: postgres.VirtualPostgres;
  beforeAll(async () => {
    store = await postgres.virtual();
  });
  afterAll(() => store.close());

  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 20, maxCommands: 100 }));

  test("the fast ways answer, push and store what the plain ones do", async () => {
    const way = (table: postgres.Table) => ({
      engine: table.engine,
      stored: (name: string) => postgres.storedIn(table, name, store.clock),
    });
    const engine = bothWays(way(store.table("fast", (sql) => sql)), way(store.table("plain", postgres.PLAIN)));
    await compareWithReference({ ...store.setting, engine, runs: 5, maxCommands: 100 });
    postgres.PLAIN.check();
  });

  test("a look at the server's own clock is refused", async () => {
    const { pool } = store.table("other", (sql) => sql);
    for (const text of ["SELECT LOCALTIMESTAMP", "SELECT transaction_timestamp()", "SELECT 'now'::timestamptz"]) {
      await expect(async () => pool.query(text)).rejects.toThrow("reads the server's own clock");
    }
  });
});

describe("mysql, in virtual time", () => {
  let store: mysql.VirtualMysql;
  beforeAll(async () => {
    store = await mysql.virtual();
  });
  afterAll(() => store.close());

  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 20, maxCommands: 100 }));

  test("the fast ways answer, push and store what the plain ones do", async () => {
    const way = (table: mysql.Table) => ({
      engine: table.engine,
      stored: (name: string) => mysql.storedIn(table, name, store.clock),
    });
    const engine = bothWays(way(store.table("fast", (sql) => sql)), way(store.table("plain", mysql.PLAIN)));
    await compareWithReference({ ...store.setting, engine, runs: 5, maxCommands: 100 });
    mysql.PLAIN.check();
  });

  test("a look at the server's own clock is refused", async () => {
    const { pool } = store.table("other", (sql) => sql);
    for (const sql of [
      "SELECT SYSDATE()",
      "SELECT UTC_TIMESTAMP(3)",
      "SELECT CURRENT_TIMESTAMP",
      "SELECT @@timestamp",
    ]) {
      await expect(pool.promise().query(sql)).rejects.toThrow("reads the server's own clock");
    }
  });
});
