import { EngineRefusedError, UnsupportedError } from "../core/errors.js";
import type { StoreErrors } from "./errors.js";

/** The oldest program that may still use a schema at this version of ours; raised by a migration that breaks older ones. */
export const LEAST_VERSION = 1;
const ATTEMPTS = 10;

/** What was read from the table of migrations: the last number, and the oldest program that may use it. */
type Version = { readonly version?: unknown; readonly least?: unknown };

/** How one database makes and updates its lock table. */
export type Migrations = {
  /** The number of the last migration that this program knows. */
  readonly last: number;
  /** Rejects with one of `missing` when there is no lock table. */
  readonly read: () => Promise<Version | undefined>;
  readonly missing: readonly (string | number)[];
  /** Runs what is missing. Rejects with one of `raced` when somebody made the same at the same moment. */
  readonly run: () => Promise<void>;
  readonly raced: readonly (string | number)[];
};

type Parts = { readonly kind: string; readonly errors: StoreErrors; readonly migrations: Migrations };

/** Any number of programs may do this at once (`pitfalls.md` 46). Nothing is written when everything is there. */
export async function migrate(parts: Parts, schema: string, allowed: boolean): Promise<void> {
  const { kind, errors, migrations } = parts;
  for (let attempt = 1; ; attempt += 1) {
    if ((await versionOf(parts, schema)) >= migrations.last) return;
    if (!allowed) {
      const missing = `the schema "${schema}" does not have the lock table of this version`;
      throw new UnsupportedError(kind, missing, "Run the text of migrationSql() as its owner, or allow migrate.");
    }
    try {
      await migrations.run();
    } catch (cause) {
      const raced = errors.hasCode(cause, migrations.raced) || errors.isTransient(cause);
      if (!raced || attempt === ATTEMPTS) throw cause;
    }
  }
}

/** How many migrations were made; 0 for none at all. */
async function versionOf({ kind, errors, migrations }: Parts, schema: string): Promise<number> {
  const found = await migrations.read().catch((cause: unknown) => {
    if (errors.hasCode(cause, migrations.missing)) return undefined;
    throw cause;
  });
  if (Number(found?.least ?? 0) > migrations.last) {
    const cause = new Error(`the schema "${schema}" was made by a newer Holdfast that this one cannot work with`);
    throw new EngineRefusedError(kind, "Update Holdfast here, or give this program a schema of its own.", cause);
  }
  return Number(found?.version ?? 0);
}
