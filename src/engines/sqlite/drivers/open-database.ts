import { statSync } from "node:fs";
import { EngineRefusedError, InvalidOptionError, UnsupportedError } from "../../../core/errors.js";
import type { SqliteDatabase } from "../driver.js";
import { notOpened } from "../errors.js";
import { installedSqlite, LIBRARIES } from "./better-sqlite3.js";
import { nodeSqlite } from "./node-sqlite.js";

type OpenDatabase = { readonly database: SqliteDatabase; readonly close: () => void };

/** A database that was handed in is not closed; one that is opened here is. */
export async function openDatabase(target: string | SqliteDatabase, path: string): Promise<OpenDatabase> {
  const own = typeof target === "string";
  const database = own ? await openWithInstalled(path) : target;
  try {
    const unregister = registerLibrary(path, database);
    const close = (): void => {
      unregister();
      if (own) database.close();
    };
    return { database, close };
  } catch (error) {
    if (own) database.close();
    throw error;
  }
}

/** The file behind a database that was handed in. */
export function databasePath(database: SqliteDatabase): string {
  const usable = typeof database === "object" && database !== null && typeof database.prepare === "function";
  if (!usable) {
    const allowed = "a path, or an open database of node:sqlite, libsql or better-sqlite3";
    throw new InvalidOptionError("target", "it is neither a path nor a database", allowed);
  }
  const files = database.prepare("PRAGMA database_list").all() as { name: string; file: string }[];
  const file = files.find(({ name }) => name === "main")?.file;
  if (file) return file;
  const cause = new Error("the database is in memory and is shared with no other process");
  throw new EngineRefusedError("sqlite", "Open it on a file, or use memory:.", cause);
}

async function openWithInstalled(path: string): Promise<SqliteDatabase> {
  const open = nodeSqlite() ?? (await installedSqlite());
  if (open === undefined) {
    const missing = `Node.js ${process.versions.node} has no SQLite of its own, and neither ${LIBRARIES.join(" nor ")} is installed`;
    throw new UnsupportedError("sqlite", missing, `Run "npm install ${LIBRARIES[0]}", or use Node.js 22.13 or later.`);
  }
  try {
    return open(path);
  } catch (error) {
    throw notOpened(path, error);
  }
}

type Registered = { readonly library: unknown; count: number };

/** For all copies of this package in the process. */
const OPENED = Symbol.for("holdfast.sqlite.opened");

/**
 * Two SQLite libraries in one process do not see each other's file locks, and closing the file in one gives up those of
 * the other: both would grant, and the file would break.
 */
function registerLibrary(path: string, database: SqliteDatabase): () => void {
  const global = globalThis as { [OPENED]?: Map<string, Registered> };
  const opened = (global[OPENED] ??= new Map());
  const { dev, ino } = statSync(path, { bigint: true });
  const key = `${dev}:${ino}`;
  const library: unknown = database.constructor;
  const known = opened.get(key) ?? { library, count: 0 };
  if (known.library !== library) {
    const cause = new Error(`${path} is open in this process through another SQLite library`);
    throw new EngineRefusedError("sqlite", "Their locks do not bind each other: open it through one of them.", cause);
  }
  known.count += 1;
  opened.set(key, known);
  return () => {
    known.count -= 1;
    if (known.count === 0) opened.delete(key);
  };
}
