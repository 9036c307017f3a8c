import { UnsupportedError } from "../core/errors.js";
import {
  FIRST_LAYOUT_VERSION,
  isBehind,
  LAYOUT_VERSIONS,
  type LayoutVersions,
  type VersionedStore,
} from "../engine-kit/layout-version.js";
import type { StoreErrors } from "./errors.js";

const ATTEMPTS = 10;

/** What was read from the table of migrations: the last number, and the lowest version of whoever may use it. */
type Version = { readonly version?: unknown; readonly least?: unknown };

/** How one database makes and updates its lock table. */
export type Migrations = {
  /** Rejects with one of `missing` when there is no lock table. */
  readonly read: () => Promise<Version | undefined>;
  readonly missing: readonly (string | number)[];
  /** Runs what is missing. Rejects with one of `raced` when somebody made the same at the same moment. */
  readonly run: () => Promise<void>;
  readonly raced: readonly (string | number)[];
};

type Parts = { readonly kind: VersionedStore; readonly errors: StoreErrors; readonly migrations: Migrations };

/** The version of the layout that a migration makes, and the lowest that a program must speak then. */
export function versionMadeBy(kind: VersionedStore, at: number): { readonly number: number; readonly least: number } {
  return { number: FIRST_LAYOUT_VERSION + at, least: LAYOUT_VERSIONS[kind].lowest };
}

/** Any number of programs may do this at once (`pitfalls.md` 46). Nothing is written when everything is there. */
export async function migrate(parts: Parts, schema: string, allowed: boolean): Promise<void> {
  const { kind, errors, migrations } = parts;
  const place = { kind, what: `the schema "${schema}"`, another: "a schema" };
  for (let attempt = 1; ; attempt += 1) {
    const stored = await versionsOf(parts);
    if (stored !== null && !isBehind(place, stored)) return;
    if (!allowed) {
      const missing = `the schema "${schema}" does not have the lock table of this version`;
      throw new UnsupportedError(kind, missing, "Run the text of migrationSql() as its owner, or allow migrate.");
    }
    try {
      await migrations.run();
    } catch (cause) {
      const raced = errors.hasCode(cause, migrations.raced) || errors.isTransient(cause, attempt);
      if (!raced || attempt === ATTEMPTS) throw cause;
    }
  }
}

/** Null where there is no lock table. */
async function versionsOf({ errors, migrations }: Parts): Promise<LayoutVersions | null> {
  const found = await migrations.read().catch((cause: unknown) => {
    if (errors.hasCode(cause, migrations.missing)) return undefined;
    throw cause;
  });
  const highest = Number(found?.version ?? 0);
  return highest === 0 ? null : { lowest: Number(found?.least), highest };
}
