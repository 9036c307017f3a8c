// Beside the usual files: a file has no server that somebody set up, so whoever opens it first creates the tables.
import { EngineRefusedError } from "../../core/errors.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import {
  FIRST_LAYOUT_VERSION,
  isBehind,
  LAYOUT_VERSIONS,
  type LayoutVersions,
} from "../../engine-kit/layout-version.js";
import type { SqliteDatabase } from "./driver.js";
import type { Machine } from "./machine.js";
import { MIGRATIONS } from "./scripts.generated.js";
import { prepare, type Statements } from "./statements.js";
import type { Transactions } from "./transactions.js";

/** "Hold" in ASCII: tells lock files from databases of other programs. */
const APPLICATION_ID = 0x486f6c64;
/** The rows are small, and each page that a step touches is written as a whole: small pages make short writes. */
const PAGE_BYTES = 1024;
/** A checkpoint waits for the disk; 4 MiB of log between two of them. */
const CHECKPOINT_PAGES = 4096;

/**
 * Makes the file a lock file, or refuses one of another program without changing it. Any number of processes may do this at once: each
 * step is either read again inside the transaction that acts on it, or harmless when done twice (`docs/internals/pitfalls.md` 46).
 */
export async function prepareFile(
  database: SqliteDatabase,
  path: string,
  transactions: Transactions,
  machine: Machine,
) {
  const doing = `opening ${path}`;
  database.exec("PRAGMA busy_timeout = 0");
  const wal = await transactions.read(doing, () => {
    isCurrent(database, path);
    return pragma(database, "journal_mode") === "wal";
  });
  if (!wal) await switchToWal(database, path, transactions);
  await transactions.exec(doing, `PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  // Only a process that finds a migration to run writes: the others only read, however many open the file at once.
  const current = await transactions.read(doing, () => isCurrent(database, path));
  if (!current) await transactions.write(doing, () => migrate(database, path));
  // The pages of the tables get their room on the disk now, and not on the day it is full.
  if (!current) await transactions.exec(doing, "PRAGMA wal_checkpoint(PASSIVE)");
  const sql = prepare(database);
  if (await transactions.read(doing, () => isOfAnotherBoot(sql, machine)))
    await transactions.write(doing, () => rebase(sql, machine));
  return sql;
}

function pragma(database: SqliteDatabase, name: string): unknown {
  const row = database.prepare(`PRAGMA ${name}`).get();
  return Object.entries(row ?? {}).find(([key]) => key !== "_metadata")?.[1];
}

/**
 * Whether no migration is missing. Refuses what is no lock file, and one that this version cannot work with. Inside a transaction:
 * another process may be creating the tables at this moment.
 */
function isCurrent(database: SqliteDatabase, path: string): boolean {
  // Reading the tables shows a file that is no database, or a broken one, which the header alone may not.
  const { count } = database.prepare("SELECT count(*) AS count FROM sqlite_schema").get() as { count: number };
  const [application, version] = [pragma(database, "application_id"), pragma(database, "user_version")];
  if (application === APPLICATION_ID) {
    return !isBehind({ kind: "sqlite", what: path, another: "a file" }, versionsOf(database, Number(version)));
  }
  if (application === 0 && version === 0 && count === 0) return false;
  const cause = new Error(`${path} is a database of another program`);
  throw new EngineRefusedError("sqlite", "It was left as it is. Give the locks a file of their own.", cause);
}

function versionsOf(database: SqliteDatabase, highest: number): LayoutVersions {
  // Before the first version that was published, files kept no lowest one.
  if (highest < FIRST_LAYOUT_VERSION) return { lowest: highest, highest };
  const { lowest } = database.prepare("SELECT lowest_version AS lowest FROM store").get() as { lowest: number };
  return { lowest, highest };
}

async function switchToWal(database: SqliteDatabase, path: string, transactions: Transactions): Promise<void> {
  const doing = `opening ${path}`;
  await transactions.exec(doing, `PRAGMA page_size = ${PAGE_BYTES}; PRAGMA journal_mode = WAL`);
  const mode = await transactions.read(doing, () => pragma(database, "journal_mode"));
  if (mode === "wal") return;
  // No error, and not done: in memory, or without shared memory.
  const cause = new Error(`${path} cannot be used by several processes (journal mode "${String(mode)}")`);
  throw new EngineRefusedError("sqlite", "Use a file on a local disk, or memory: within one process.", cause);
}

function migrate(database: SqliteDatabase, path: string): void {
  // Another process did it meanwhile.
  if (isCurrent(database, path)) return;
  const done = Math.max(0, Number(pragma(database, "user_version")) - FIRST_LAYOUT_VERSION + 1);
  for (const migration of MIGRATIONS.slice(done)) database.exec(migration);
  const { lowest, highest } = LAYOUT_VERSIONS.sqlite;
  database.exec(`UPDATE store SET lowest_version = ${lowest}`);
  // Both stand in the header and are part of the transaction.
  database.exec(`PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${highest}`);
}

function isOfAnotherBoot(sql: Statements, machine: Machine): boolean {
  const store = sql.storeGet.get(machine.now());
  if (store === undefined) throw new Error("invariant: the store has its row");
  return store.boot !== machine.boot || store.strange !== 0;
}

/**
 * The times in the file belong to another boot, of this machine or, against the rules, of another one that still runs.
 * All that is known is how long each lease can still last: it is kept for that long from now.
 */
function rebase(sql: Statements, machine: Machine): void {
  if (!isOfAnotherBoot(sql, machine)) return;
  const now = machine.now();
  sql.rebaseStore.run(machine.boot);
  sql.rebaseClaims.run(now);
  sql.rebaseNames.run(now);
  sql.rebaseTombstones.run(now + TOMBSTONE_MS);
  sql.rebaseOperations.run(now + TOMBSTONE_MS);
}
