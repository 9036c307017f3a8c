import type { SqliteDatabase } from "../driver.js";

type NodeSqlite = { readonly DatabaseSync: new (path: string) => SqliteDatabase };

/** `node:sqlite`, where this Node has it (22.13 and later); undefined elsewhere. */
export function nodeSqlite(): ((path: string) => SqliteDatabase) | undefined {
  const { DatabaseSync } = quietly(() => process.getBuiltinModule("node:sqlite") as NodeSqlite | undefined) ?? {};
  return DatabaseSync && ((path) => new DatabaseSync(path));
}

/**
 * Loading it prints an ExperimentalWarning on some versions. Which SQLite is behind a lock is our choice, not the
 * program's, so the program's users need not read about it. Loading is synchronous: nobody else's warning is held back.
 */
function quietly<T>(load: () => T): T {
  const own = Object.getOwnPropertyDescriptor(process, "emitWarning");
  process.emitWarning = () => {};
  try {
    return load();
  } finally {
    if (own === undefined) Reflect.deleteProperty(process, "emitWarning");
    else Object.defineProperty(process, "emitWarning", own);
  }
}
