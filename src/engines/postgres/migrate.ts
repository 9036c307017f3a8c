// Beyond the usual files: how PostgreSQL makes and updates the lock table.
import { type Migrations, versionMadeBy } from "../../sql/migrate.js";
import { inSchema } from "../../sql/statements.js";
import type { Driver } from "./driver.js";
import { MIGRATIONS } from "./scripts.generated.js";
import { quoted } from "./statements.js";

/** Chosen once and never changed: whoever migrates holds this advisory lock until the end of the transaction. */
const MIGRATION_LOCK = "4857624601";

/**
 * Everything that makes or updates the lock table, as one text: for people who do not let programs make tables. Running it
 * again does nothing.
 */
export function migrationSql(schema = "holdfast"): string {
  const own = quoted(schema);
  const [body, step, all] = ["body", "step", "migration"].map((name) => dollars(name, schema));
  const steps = MIGRATIONS.map((migration, at) => {
    // By a function: in a replacement text a dollar sign means something else. Before the schema's name, which may hold some.
    const text = inSchema(
      migration.replaceAll("$$", () => body ?? ""),
      own,
    );
    const { number, least } = versionMadeBy("postgres", at);
    return `  IF NOT EXISTS (SELECT FROM ${own}.migration WHERE number = ${number}) THEN
    EXECUTE ${step}${text}${step};
    INSERT INTO ${own}.migration (number, least) VALUES (${number}, ${least});
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

export function migrationsOf(driver: Driver, schema: string): Migrations {
  const text = `SELECT max(number)::text AS version, max(least)::text AS least FROM ${quoted(schema)}.migration`;
  return {
    read: async () => (await driver.run({ text })).rows[0],
    missing: ["42P01", "3F000"],
    run: async () => void (await driver.run({ text: migrationSql(schema) })),
    // Somebody made the same schema by other means.
    raced: ["23505", "42P06", "42P07", "42723"],
  };
}

/** What a text is quoted with: nothing that the schema's name, which may hold dollar signs, can end. */
function dollars(name: string, schema: string): string {
  const tag = `$holdfast_${name}`;
  return schema.includes(tag) ? `$${"_".repeat(schema.length)}_${name}$` : `${tag}$`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
