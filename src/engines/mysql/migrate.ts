// Beyond the usual files: how MySQL and MariaDB make and update the lock table.
import { type Migrations, versionMadeBy } from "../../sql/migrate.js";
import { inSchema } from "../../sql/statements.js";
import { type Row, textOf } from "./driver.js";
import type { PooledConnection } from "./drivers/connection.js";
import type { Mysql2Driver } from "./drivers/mysql2.js";
import { errors } from "./errors.js";
import { MIGRATIONS } from "./scripts.generated.js";
import { quoted } from "./statements.js";

const LOCK_WAIT_S = 30;
/** Procedures keep the mode they were made in: it must not be whatever the connection happens to have. */
const SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

/**
 * The statements of each migration, in order. Making them again changes nothing. `replaces`: as MariaDB can. MySQL has no CREATE
 * OR REPLACE for procedures, so that a call of another program may come in between and is made again (`errors.ts`).
 */
function statements(schema: string, replaces: boolean): string[][] {
  return MIGRATIONS.map((migration) =>
    migration
      .split("\n//\n")
      .map((text) => text.trim())
      .filter((text) => text !== "")
      .flatMap((text) => {
        const own = inSchema(text, quoted(schema));
        const [, name] = /^CREATE PROCEDURE (\S+?)\(/m.exec(own) ?? [];
        if (name === undefined) return [own];
        return replaces
          ? [own.replace(/^CREATE PROCEDURE/m, "CREATE OR REPLACE PROCEDURE")]
          : [`DROP PROCEDURE IF EXISTS ${name}`, own];
      }),
  );
}

/**
 * Everything that makes or updates the lock table, for people who do not let programs make tables: for the `mariadb` or
 * `mysql` command line.
 */
export function migrationSql(schema = "holdfast"): string {
  const own = quoted(schema);
  const all = statements(schema, false).flatMap((list, at) => [...list, noted(own, at)]);
  const text = [`SET SESSION sql_mode = '${SQL_MODE}'`, ...first(own), ...all];
  return `DELIMITER //\n${text.map((statement) => `${statement}\n//\n`).join("")}DELIMITER ;\n`;
}

function first(own: string): string[] {
  return [
    `CREATE DATABASE IF NOT EXISTS ${own}`,
    `CREATE TABLE IF NOT EXISTS ${own}.migration (number INT NOT NULL PRIMARY KEY, least INT NOT NULL) ENGINE = InnoDB`,
  ];
}

function noted(own: string, at: number): string {
  const { number, least } = versionMadeBy("mysql", at);
  return `INSERT IGNORE INTO ${own}.migration VALUES (${number}, ${least})`;
}

const MISSING = [1049, 1146];

export function migrationsOf(driver: Mysql2Driver, schema: string): Migrations {
  return {
    read: async () => versionIn(await driver.read(versionSql(schema))),
    missing: MISSING,
    run: async () => {
      const connection = await driver.connection(LOCK_WAIT_S * 1000);
      // With its mode changed and perhaps a lock, it does not go back. The lock ends with it.
      await migrateOn(connection, schema).finally(() => connection.close());
    },
    // On a cluster the named lock holds on one node only: somebody made the same on another.
    raced: [1050, 1304, 1007, 1305],
  };
}

async function migrateOn(connection: PooledConnection, schema: string): Promise<void> {
  const own = quoted(schema);
  await connection.run(`SELECT GET_LOCK('holdfast migration ${schema}', ${LOCK_WAIT_S}) AS got`);
  const found = await connection.run(versionSql(schema)).catch((cause: unknown) => {
    if (errors.hasCode(cause, MISSING)) return [];
    throw cause;
  });
  const done = Number(versionIn(found)?.version ?? 0);
  const isDone = (at: number): boolean => versionMadeBy("mysql", at).number <= done;
  if (isDone(MIGRATIONS.length - 1)) return;
  await connection.run(`SET SESSION sql_mode = '${SQL_MODE}'`);
  // Only when it is missing: the right to make a database is not needed to use one.
  if (done === 0) for (const statement of first(own)) await connection.run(statement);
  const [[server] = []] = await connection.run("SELECT VERSION() AS version");
  const replaces = /mariadb/i.test(textOf(server?.version));
  for (const [at, list] of statements(schema, replaces).entries()) {
    if (isDone(at)) continue;
    for (const statement of list) await connection.run(statement);
    await connection.run(noted(own, at));
  }
}

function versionSql(schema: string): string {
  return `SELECT MAX(number) AS version, MAX(least) AS least FROM ${quoted(schema)}.migration LIMIT 1`;
}

function versionIn([rows = []]: readonly (readonly Row[])[]): Row | undefined {
  return rows[0];
}
