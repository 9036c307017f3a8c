// A database in a file, for the examples whose data is in one.
import { createRequire } from "node:module";

/** `node:sqlite` where this Node has it, else libsql; the few calls that are used here are the same. */
export function openDatabase(path) {
  const warn = process.emitWarning.bind(process);
  process.emitWarning = () => {}; // "SQLite is an experimental feature"
  const builtin = process.getBuiltinModule("node:sqlite");
  process.emitWarning = warn;
  const database = builtin ? new builtin.DatabaseSync(path) : new (createRequire(import.meta.url)("libsql"))(path);
  // First of all, and alone: what comes after it may find the file busy.
  database.exec("PRAGMA busy_timeout = 5000");
  database.exec("PRAGMA synchronous = NORMAL");
  return database;
}

/** All of it or nothing; nothing waits in between. */
export function atOnce(database, write) {
  database.exec("BEGIN IMMEDIATE");
  try {
    const result = write();
    database.exec("COMMIT");
    return result;
  } catch (error) {
    database.exec("ROLLBACK");
    throw error;
  }
}
