import { EngineRefusedError, UnsupportedError } from "../../core/errors.js";
import type { Lane } from "./adapters/lane.js";
import type { PoolConnections } from "./adapters/pool.js";
import { textOf } from "./client.js";
import { hasNumber, isTransient, translated } from "./refusals.js";
import { MIGRATIONS } from "./scripts.generated.js";

/** The oldest program that may still use a schema at this version of ours; raised by a migration that breaks older ones. */
const LEAST_VERSION = 1;
const ATTEMPTS = 10;
const LOCK_WAIT_S = 30;
/** Procedures keep the mode they were made in: it must not be whatever the connection happens to have. */
const SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

export function quoted(identifier: string): string {
  return `\`${identifier.replaceAll("`", "``")}\``;
}

/**
 * The statements of each migration, in order. Making them again changes nothing. `replaces`: as MariaDB can. MySQL has no CREATE
 * OR REPLACE for procedures, so that a call of another program may come in between and is asked again (`isMissing`).
 */
function statements(schema: string, replaces: boolean): string[][] {
  return MIGRATIONS.map((migration) =>
    migration
      .split("\n//\n")
      .map((text) => text.trim())
      .filter((text) => text !== "")
      .flatMap((text) => {
        // By a function: in a replacement text a dollar sign means something else.
        const own = text.replaceAll(/\bholdfast\./g, () => `${quoted(schema)}.`);
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
  const all = statements(schema, false).flatMap((list, at) => [...list, noted(own, at + 1)]);
  const text = [`SET SESSION sql_mode = '${SQL_MODE}'`, ...first(own), ...all];
  return `DELIMITER //\n${text.map((statement) => `${statement}\n//\n`).join("")}DELIMITER ;\n`;
}

function first(own: string): string[] {
  return [
    `CREATE DATABASE IF NOT EXISTS ${own}`,
    `CREATE TABLE IF NOT EXISTS ${own}.migration (number INT NOT NULL PRIMARY KEY, least INT NOT NULL) ENGINE = InnoDB`,
  ];
}

function noted(own: string, number: number): string {
  return `INSERT IGNORE INTO ${own}.migration VALUES (${number}, ${LEAST_VERSION})`;
}

/** Any number of programs may do this at once (`pitfalls.md` 46). Nothing is written when everything is there. */
export async function prepareSchema(connections: PoolConnections, schema: string, migrate: boolean): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const run = (sql: string) => connections.read(sql);
    if ((await versionOf(run, schema)) >= MIGRATIONS.length) return;
    if (!migrate) {
      const missing = `the schema "${schema}" does not have the lock table of this version`;
      throw new UnsupportedError("mysql", missing, "Run the text of migrationSql() as its owner, or allow migrate.");
    }
    const lane = await connections.lane(LOCK_WAIT_S * 1000);
    try {
      await migrateOn(lane, schema);
    } catch (cause) {
      // On a cluster the named lock holds on one node only: somebody made the same on another.
      const raced = hasNumber(cause, 1050, 1304, 1007, 1305) || isTransient(cause);
      if (!raced || attempt === ATTEMPTS) throw translated(cause, true);
    } finally {
      // With its mode changed and perhaps a lock: it does not go back. The lock ends with it.
      lane.close();
    }
  }
}

async function migrateOn(lane: Lane, schema: string): Promise<void> {
  const own = quoted(schema);
  const run = (sql: string) => lane.run(sql);
  await run(`SELECT GET_LOCK('holdfast migration ${schema}', ${LOCK_WAIT_S}) AS got`);
  const done = await versionOf(run, schema);
  if (done >= MIGRATIONS.length) return;
  await run(`SET SESSION sql_mode = '${SQL_MODE}'`);
  // Only when it is missing: the right to make a database is not needed to use one.
  if (done === 0) for (const statement of first(own)) await run(statement);
  const [[server] = []] = await run("SELECT VERSION() AS version");
  const replaces = /mariadb/i.test(textOf(server?.version));
  for (const [at, list] of statements(schema, replaces).entries()) {
    if (at < done) continue;
    for (const statement of list) await run(statement);
    await run(noted(own, at + 1));
  }
}

type Run = (sql: string) => Promise<readonly (readonly Readonly<Record<string, unknown>>[])[]>;

/** How many migrations were made; 0 for none at all. */
async function versionOf(run: Run, schema: string): Promise<number> {
  try {
    const [rows] = await run(
      `SELECT MAX(number) AS version, MAX(least) AS least FROM ${quoted(schema)}.migration LIMIT 1`,
    );
    if (Number(rows?.[0]?.least ?? 0) > MIGRATIONS.length) {
      const cause = new Error(`the schema "${schema}" was made by a newer Holdfast that this one cannot work with`);
      throw new EngineRefusedError("mysql", "Update Holdfast here, or give this program a schema of its own.", cause);
    }
    return Number(rows?.[0]?.version ?? 0);
  } catch (cause) {
    if (hasNumber(cause, 1049, 1146)) return 0;
    throw translated(cause, true);
  }
}
