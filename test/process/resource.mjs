// What a leader writes to: a file of its own, whatever store elects. It keeps what it accepted, in order, and refuses, in the
// statement that writes, a token below one that it has seen.
import { createRequire } from "node:module";

export class FencedResource {
  #database;
  #append;

  constructor(path) {
    this.#database = openDatabase(path);
    this.#database.exec(`
      PRAGMA busy_timeout = 10000;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = OFF;
      CREATE TABLE IF NOT EXISTS accepted (at INTEGER PRIMARY KEY, token INTEGER NOT NULL, writer INTEGER NOT NULL);
      CREATE INDEX IF NOT EXISTS by_token ON accepted (token);
    `);
    this.#append = this.#database.prepare(
      "INSERT INTO accepted (token, writer) SELECT ?, ? WHERE ? >= (SELECT coalesce(max(token), 0) FROM accepted)",
    );
  }

  /** Whether it was accepted. */
  write(token, writer) {
    return Number(this.#append.run(token, writer, token).changes) === 1;
  }

  /** Everything that was accepted, in order. */
  accepted() {
    return this.#database.prepare("SELECT token, writer FROM accepted ORDER BY at").all();
  }

  close() {
    this.#database.close();
  }
}

/** `node:sqlite` where this Node has it, else libsql; the calls that are used here are the same. */
function openDatabase(path) {
  const warn = process.emitWarning.bind(process);
  process.emitWarning = () => {}; // "SQLite is an experimental feature"
  const builtin = process.getBuiltinModule("node:sqlite");
  process.emitWarning = warn;
  return builtin ? new builtin.DatabaseSync(path) : new (createRequire(import.meta.url)("libsql"))(path);
}
