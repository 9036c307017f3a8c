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

/**
 * A number that is read, then written as one more: two who do so at once lose an increment. It keeps every increment that it
 * accepted, and refuses a token below one that it has seen, also in a read: whoever read later must not be overwritten.
 */
export class FencedCounter {
  #database;

  constructor(path) {
    this.#database = openDatabase(path);
    this.#database.exec(`
      PRAGMA busy_timeout = 30000;
      PRAGMA journal_mode = WAL;
      PRAGMA synchronous = OFF;
      CREATE TABLE IF NOT EXISTS counter (one INTEGER PRIMARY KEY, value INTEGER NOT NULL, seen INTEGER NOT NULL);
      CREATE TABLE IF NOT EXISTS increments (at INTEGER PRIMARY KEY, token INTEGER NOT NULL, writer INTEGER NOT NULL);
      INSERT OR IGNORE INTO counter VALUES (1, 0, 0);
    `);
  }

  /** Null: the token is stale. */
  read(token) {
    const [row] = this.#database
      .prepare("UPDATE counter SET seen = ? WHERE seen <= ? RETURNING value")
      .all(token, token);
    return row?.value ?? null;
  }

  /** Whether it was accepted. */
  write(token, value, writer) {
    this.#database.exec("BEGIN IMMEDIATE");
    const { changes } = this.#database
      .prepare("UPDATE counter SET value = ?, seen = ? WHERE seen <= ?")
      .run(value, token, token);
    const accepted = Number(changes) === 1;
    if (accepted) this.#database.prepare("INSERT INTO increments (token, writer) VALUES (?, ?)").run(token, writer);
    this.#database.exec("COMMIT");
    return accepted;
  }

  /** The number, and every increment that was accepted, in order. */
  state() {
    const { value } = this.#database.prepare("SELECT value FROM counter").get();
    return { value, increments: this.#database.prepare("SELECT token, writer FROM increments ORDER BY at").all() };
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
