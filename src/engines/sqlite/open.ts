import { realpathSync, statSync } from "node:fs";
import type { Chance, Clock } from "../../core/clock.js";
import type { EngineEvent } from "../../core/engine.js";
import { EngineRefusedError, InvalidOptionError, UnsupportedError } from "../../core/errors.js";
import { installedSqlite, LIBRARIES } from "./adapters/better-sqlite3.js";
import { nodeSqlite } from "./adapters/node-sqlite.js";
import { Bell } from "./bell.js";
import type { SqliteDatabase } from "./client.js";
import { checkPlace } from "./file.js";
import { Gate, notOpened } from "./gate.js";
import { Ledger } from "./ledger.js";
import { Lookout } from "./lookout.js";
import type { Machine } from "./machine.js";
import { type Letter, Mailbox } from "./mailbox.js";
import { prepareFile } from "./schema.js";
import { SqliteStore } from "./store.js";

/** Everything that an open file consists of. */
export type SqliteFile = {
  /** The same for everybody who has this file open. */
  readonly identity: string;
  readonly gate: Gate;
  readonly ledger: Ledger;
  readonly store: SqliteStore;
  readonly mailbox: Mailbox;
  readonly bell: Bell;
  readonly lookout: Lookout;
  close(): void;
};

export type FileParts = {
  readonly target: string | SqliteDatabase;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly machine: Machine;
  readonly emit: (event: EngineEvent) => void;
  readonly letter: (letter: Letter) => void;
  readonly clear: (name: string, guard: string) => void;
  readonly holding: () => boolean;
};

export async function openFile(parts: FileParts): Promise<SqliteFile> {
  const { target, clock, chance, machine, emit, letter, clear, holding } = parts;
  const own = typeof target === "string";
  const path = checkPlace(own ? target : pathOf(target), machine);
  const database = own ? await openDatabase(path) : target;
  const forget = rememberLibrary(path, database, () => own && database.close());
  const gate = new Gate(database, path, clock, chance);
  const close = (): void => {
    gate.close();
    forget();
    if (own) database.close();
  };
  try {
    const sql = await gate.opening(() => prepareFile(database, path, gate, machine));
    // One folder for all names of the file: who opened it by another name has to find our box.
    const real = realpathSync(path);
    const mailbox = new Mailbox(real, machine, chance, {
      letter,
      missed: () => emit({ kind: "wake" }),
      unwatched: () => lookout.unwatched(),
      warning: (message) => emit({ kind: "warning", message }),
    });
    const lookout = new Lookout({ clock, machine, mailbox, gate, sql, clear, emit, holding });
    const { dev, ino, mode } = statSync(path);
    mailbox.sweep(clock.wallMs());
    mailbox.open();
    const bell = new Bell(`${real}-mail/bell`, mode & 0o666, machine);
    const ledger = new Ledger(sql, machine, clock, mailbox.address);
    const closeAll = (): void => {
      lookout.stop();
      mailbox.close();
      bell.close();
      close();
    };
    return {
      identity: `sqlite ${dev}:${ino}`,
      gate,
      ledger,
      store: new SqliteStore(ledger),
      mailbox,
      bell,
      lookout,
      close: closeAll,
    };
  } catch (error) {
    close();
    throw error;
  }
}

type Opened = { readonly library: unknown; count: number };

/** For all copies of this package in the process. */
const OPENED = Symbol.for("holdfast.sqlite.opened");

/**
 * Two SQLite libraries in one process do not see each other's file locks, and closing the file in one gives up those of
 * the other: both would grant, and the file would break.
 */
function rememberLibrary(path: string, database: SqliteDatabase, close: () => void): () => void {
  const global = globalThis as { [OPENED]?: Map<string, Opened> };
  const opened = (global[OPENED] ??= new Map());
  const { dev, ino } = statSync(path, { bigint: true });
  const key = `${dev}:${ino}`;
  const library: unknown = database.constructor;
  const known = opened.get(key) ?? { library, count: 0 };
  if (known.library !== library) {
    close();
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

async function openDatabase(path: string): Promise<SqliteDatabase> {
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

/** The file behind a database that was handed in. */
function pathOf(database: SqliteDatabase): string {
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
