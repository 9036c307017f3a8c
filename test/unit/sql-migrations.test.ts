import { describe, expect, test } from "vitest";
import type { Mysql2Driver } from "../../src/engines/mysql/drivers/mysql2.js";
import * as mysql from "../../src/engines/mysql/migrate.js";
import type { Driver } from "../../src/engines/postgres/driver.js";
import * as postgres from "../../src/engines/postgres/migrate.js";
import { versionMadeBy } from "../../src/sql/migrate.js";

/** What is sent to make a lock table, in which order, and what is left out where there is one. What servers make of it is in test/faults. */

const OURS = versionMadeBy("mysql", 0);
const refusal = (errno: number): Error => Object.assign(new Error(`error ${errno}`), { errno, sqlState: "42000" });

/** A server of MySQL's that has this version of the lock table, or none. */
function mysqlServer(found: Error | { version: number | null }, version = "10.11.6-MariaDB") {
  const sent: string[] = [];
  const longer: number[] = [];
  const answer = (sql: string): unknown => {
    if (sql.includes("VERSION()")) return [[{ version: Buffer.from(version) }]];
    if (!sql.includes("MAX(number)")) return [];
    if (found instanceof Error) throw found;
    return [[{ ...found, least: 2 }]];
  };
  const run = async (sql: string): Promise<unknown> => {
    sent.push(sql);
    return answer(sql);
  };
  const driver = {
    connection: async (longerMs: number) => {
      longer.push(longerMs);
      return { run, close: () => sent.push("closed") };
    },
    read: async (sql: string) => answer(sql),
  } as unknown as Mysql2Driver;
  return { sent, longer, migrations: mysql.migrationsOf(driver, "s") };
}

const READ = "SELECT MAX(number) AS version, MAX(least) AS least FROM `s`.migration LIMIT 1";
const LOCK = "SELECT GET_LOCK('holdfast migration s', 30) AS got";
const MODE = "SET SESSION sql_mode = 'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION'";
const NOTED = `INSERT IGNORE INTO \`s\`.migration VALUES (${OURS.number}, ${OURS.least})`;
const isMade = (sql: string): boolean => /^(?:-- .*\n)*\s*CREATE (?:OR REPLACE )?PROCEDURE/.test(sql);

describe("a lock table in MySQL", () => {
  test.each([1049, 1146])(
    "where there is none (error %i) it is made under a named lock, and noted at the end",
    async (errno) => {
      const { sent, longer, migrations } = mysqlServer(refusal(errno));
      await migrations.run();
      expect(longer).toEqual([30_000]);
      expect(sent.slice(0, 6)).toEqual([
        ...[LOCK, READ, MODE, "CREATE DATABASE IF NOT EXISTS `s`"],
        "CREATE TABLE IF NOT EXISTS `s`.migration (number INT NOT NULL PRIMARY KEY, least INT NOT NULL) ENGINE = InnoDB",
        "SELECT VERSION() AS version",
      ]);
      expect(sent.slice(-2)).toEqual([NOTED, "closed"]);
      const made = sent.slice(6, -2);
      expect(made.length).toBeGreaterThan(10);
      for (const sql of made) expect(sql, sql.slice(0, 60)).toMatch(/\S/);
      expect(made.join("\n")).not.toContain("holdfast.");
    },
  );

  test("MariaDB's procedures are replaced in one step, MySQL's are dropped first", async () => {
    const mariadb = mysqlServer(refusal(1146));
    await mariadb.migrations.run();
    const replaced = mariadb.sent.filter((sql) => isMade(sql));
    expect(replaced.length).toBeGreaterThan(5);
    expect(replaced.every((sql) => sql.includes("CREATE OR REPLACE PROCEDURE"))).toBe(true);
    expect(mariadb.sent.some((sql) => sql.startsWith("DROP PROCEDURE"))).toBe(false);
    const other = mysqlServer(refusal(1146), "8.0.36");
    await other.migrations.run();
    const created = [...other.sent.entries()].filter(([, sql]) => isMade(sql));
    expect(created).toHaveLength(replaced.length);
    for (const [at, sql] of created) {
      const [, name] = /CREATE PROCEDURE (\S+?)\(/.exec(sql) ?? [];
      expect(other.sent[at - 1]).toBe(`DROP PROCEDURE IF EXISTS ${name}`);
    }
    const plain = (sent: readonly string[]): string[] =>
      sent.filter((sql) => !isMade(sql) && !sql.startsWith("DROP PROC"));
    expect(plain(other.sent)).toEqual(plain(mariadb.sent));
  });

  test("where somebody else has made it meanwhile nothing is made", async () => {
    for (const version of [OURS.number, OURS.number + 1]) {
      const { sent, migrations } = mysqlServer({ version });
      await migrations.run();
      expect(sent).toEqual([LOCK, READ, "closed"]);
    }
  });

  test("a table of migrations that is empty, or older, is gone on with; the database is only made where nothing is", async () => {
    const empty = mysqlServer({ version: null });
    await empty.migrations.run();
    expect(empty.sent).toContain("CREATE DATABASE IF NOT EXISTS `s`");
    expect(empty.sent.slice(-2)).toEqual([NOTED, "closed"]);
    const older = mysqlServer({ version: OURS.number - 1 });
    await older.migrations.run();
    expect(older.sent.slice(0, 4)).toEqual([LOCK, READ, MODE, "SELECT VERSION() AS version"]);
    expect(older.sent.slice(-2)).toEqual([NOTED, "closed"]);
  });

  test("any other failure is the caller's, and the connection with the lock is given up", async () => {
    const { sent, migrations } = mysqlServer(refusal(1142));
    await expect(migrations.run()).rejects.toThrow("error 1142");
    expect(sent).toEqual([LOCK, READ, "closed"]);
    await expect(migrations.read()).rejects.toThrow("error 1142");
    expect(await mysqlServer({ version: 5 }).migrations.read()).toEqual({ version: 5, least: 2 });
  });

  test("for the command line it is one text, which drops each procedure before it makes it", () => {
    const text = mysql.migrationSql("s");
    const [first, ...statements] = text.split("\n//\n");
    expect(first).toBe(`DELIMITER //\n${MODE}`);
    expect(statements.pop()).toBe("DELIMITER ;\n");
    expect(statements[0]).toBe("CREATE DATABASE IF NOT EXISTS `s`");
    expect(statements.at(-1)).toBe(NOTED);
    expect(statements.filter((sql) => sql.startsWith("DROP PROCEDURE"))).toHaveLength(statements.filter(isMade).length);
    expect(text).not.toContain("OR REPLACE");
    expect(mysql.migrationSql()).toBe(mysql.migrationSql("holdfast"));
  });
});

describe("a lock table in PostgreSQL", () => {
  test("is made by one text, whose parts are quoted with nothing that the schema's name can end", () => {
    for (const schema of ["s", "a$holdfast_body", "a$holdfast_step", "a$holdfast_migration", "a$$b"]) {
      const text = postgres.migrationSql(schema);
      const [, all = ""] = /\nDO (\$\w+\$) BEGIN/.exec(text) ?? [];
      const [, step = ""] = /EXECUTE (\$\w+\$)/.exec(text) ?? [];
      const [, body = ""] = /\bAS (\$\w+\$)/.exec(text) ?? [];
      expect(new Set([all, step, body]).size, schema).toBe(3);
      // Each opens and closes, and nothing else is written like it.
      expect(text.split(all), schema).toHaveLength(3);
      expect(text.split(step), schema).toHaveLength(3);
      expect(text.split(body).length % 2, schema).toBe(1);
      expect(text.trimEnd().endsWith(`END ${all};`), schema).toBe(true);
      expect(
        [all, step, body].filter((tag) => schema.includes(tag.slice(0, -1))),
        schema,
      ).toEqual([]);
      // Who reads the text sees what is what.
      if (schema === "s")
        expect([all, step, body]).toEqual(["$holdfast_migration$", "$holdfast_step$", "$holdfast_body$"]);
    }
  });

  test("is noted by the version that it makes, and read by the highest", async () => {
    const { number, least } = versionMadeBy("postgres", 0);
    const text = postgres.migrationSql("s");
    expect(text).toContain(`IF NOT EXISTS (SELECT FROM "s".migration WHERE number = ${number}) THEN`);
    expect(text).toContain(`INSERT INTO "s".migration (number, least) VALUES (${number}, ${least});`);
    expect(text).toContain(`IF to_regnamespace('"s"') IS NULL THEN CREATE SCHEMA "s"; END IF;`);
    const sent: string[] = [];
    const driver = {
      run: async ({ text: one }: { text: string }) => (sent.push(one), { rows: [{ version: "2", least: "2" }] }),
    } as unknown as Driver;
    const migrations = postgres.migrationsOf(driver, "s");
    expect(await migrations.read()).toEqual({ version: "2", least: "2" });
    await migrations.run();
    expect(sent).toEqual(['SELECT max(number)::text AS version, max(least)::text AS least FROM "s".migration', text]);
  });
});
