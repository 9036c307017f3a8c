import { EngineRefusedError, UnsupportedError } from "../../core/errors.js";
import type { Connections } from "./client.js";
import { quoted } from "./listener.js";
import { hasCode, isTransient, translated } from "./refusals.js";
import { MIGRATIONS } from "./scripts.generated.js";

/** The oldest program that may still use a schema at this version of ours; raised by a migration that breaks older ones. */
const LEAST_VERSION = 1;
/** Chosen once and never changed: whoever migrates holds this advisory lock until the end of the transaction. */
const MIGRATION_LOCK = "4857624601";
const ATTEMPTS = 10;

/**
 * Everything that makes or updates the lock table, as one text: for people who do not let programs make tables. Running it
 * again does nothing.
 */
export function migrationSql(schema = "holdfast"): string {
  const own = quoted(schema);
  const [body, step, all] = ["body", "step", "migration"].map((name) => dollars(name, schema));
  const steps = MIGRATIONS.map((migration, at) => {
    // By functions: in a replacement text a dollar sign means something else.
    const text = migration.replaceAll("$$", () => body ?? "").replaceAll(/\bholdfast\./g, () => `${own}.`);
    return `  IF NOT EXISTS (SELECT FROM ${own}.migration WHERE number = ${at + 1}) THEN
    EXECUTE ${step}${text}${step};
    INSERT INTO ${own}.migration (number, least) VALUES (${at + 1}, ${LEAST_VERSION});
  END IF;`;
  });
  // One message is one transaction. The level comes first, so that each statement sees what was done while it waited.
  return `SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT pg_advisory_xact_lock(${MIGRATION_LOCK});
DO ${all} BEGIN
  -- Only when it is missing: the right to make a schema is not needed to use one.
  IF to_regnamespace(${literal(own)}) IS NULL THEN CREATE SCHEMA ${own}; END IF;
  IF to_regclass(${literal(`${own}.migration`)}) IS NULL THEN
    CREATE TABLE ${own}.migration (
      number integer PRIMARY KEY, least integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()
    );
  END IF;
${steps.join("\n")}
END ${all};
`;
}

/** Any number of programs may do this at once (`pitfalls.md` 46). Nothing is written when everything is there. */
export async function prepareSchema(connections: Connections, schema: string, migrate: boolean): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    if ((await versionOf(connections, schema)) >= MIGRATIONS.length) return;
    if (!migrate) {
      const missing = `the schema "${schema}" does not have the lock table of this version`;
      throw new UnsupportedError("postgres", missing, "Run the text of migrationSql() as its owner, or allow migrate.");
    }
    try {
      await connections.run({ text: migrationSql(schema) });
    } catch (cause) {
      // Somebody made the same schema by other means at the same moment.
      const raced = hasCode(cause, "23505", "42P06", "42P07", "42723") || isTransient(cause);
      if (!raced || attempt === ATTEMPTS) throw translated(cause, true);
    }
  }
}

/** How many migrations were made; 0 for none at all. */
async function versionOf(connections: Connections, schema: string): Promise<number> {
  const text = `SELECT max(number)::text AS version, max(least)::text AS least FROM ${quoted(schema)}.migration`;
  try {
    const { rows } = await connections.run({ text });
    const least = Number(rows[0]?.least ?? 0);
    if (least > MIGRATIONS.length) {
      const cause = new Error(`the schema "${schema}" was made by a newer Holdfast that this one cannot work with`);
      throw new EngineRefusedError(
        "postgres",
        "Update Holdfast here, or give this program a schema of its own.",
        cause,
      );
    }
    return Number(rows[0]?.version ?? 0);
  } catch (cause) {
    if (hasCode(cause, "42P01", "3F000")) return 0;
    throw translated(cause, true);
  }
}

/** What a text is quoted with: nothing that the schema's name, which may hold dollar signs, can end. */
function dollars(name: string, schema: string): string {
  const tag = `$holdfast_${name}`;
  return schema.includes(tag) ? `$${"_".repeat(schema.length)}_${name}$` : `${tag}$`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
