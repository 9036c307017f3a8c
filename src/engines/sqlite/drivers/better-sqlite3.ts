import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { SqliteDatabase } from "../driver.js";

/** Two libraries with one API, in the order in which they are tried: libsql comes without a compiler. */
export const LIBRARIES = ["libsql", "better-sqlite3"] as const;

type Constructor = new (path: string) => SqliteDatabase;

/** The first of the libraries that is installed beside this package or where the program runs; undefined when none is. */
export async function installedSqlite(): Promise<((path: string) => SqliteDatabase) | undefined> {
  for (const library of LIBRARIES) {
    const loaded = await load(library);
    if (loaded !== undefined) return (path) => new loaded(path);
  }
  return undefined;
}

async function load(library: string): Promise<Constructor | undefined> {
  // The second place is for package managers that hide a program's packages from its dependencies.
  const program = createRequire(join(process.cwd(), "program.js"));
  for (const find of [() => library, () => pathToFileURL(program.resolve(library)).href]) {
    try {
      return ((await import(find())) as { default: Constructor }).default;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      // Installed and broken (the wrong Node, a missing binary) is the user's to know.
      if (code !== "ERR_MODULE_NOT_FOUND" && code !== "MODULE_NOT_FOUND") throw error;
    }
  }
  return undefined;
}
