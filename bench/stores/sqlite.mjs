import { randomUUID } from "node:crypto";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newFolder } from "../lib/room.mjs";
import { holdfast, POLL_MS, pause } from "./holdfast.mjs";

/** What the engine uses on this Node.js, without the engine. */
const inside = await import("node:sqlite").catch(() => null);
export const libraryName = inside ? "node:sqlite" : "libsql";
const Database = inside?.DatabaseSync ?? (await import("libsql")).default;
export const openSqlite = (path) => new Database(path);

/** With the engine's settings. A file that another process is writing to is busy, and asked again. */
const bareTable = {
  async open({ folder }) {
    const database = openSqlite(join(folder, "bare.db"));
    for (const setting of ["busy_timeout = 10000", "journal_mode = WAL", "synchronous = NORMAL"]) {
      database.exec(`PRAGMA ${setting}`);
    }
    database.exec("CREATE TABLE IF NOT EXISTS bare (name TEXT PRIMARY KEY, owner TEXT NOT NULL)");
    const insert = database.prepare("INSERT OR IGNORE INTO bare VALUES (?, ?) RETURNING owner");
    const remove = database.prepare("DELETE FROM bare WHERE name = ? AND owner = ?");
    return {
      async take(name) {
        const owner = randomUUID();
        while (insert.get(name, owner) === undefined) await pause(POLL_MS);
        return () => remove.run(name, owner);
      },
      close: () => database.close(),
    };
  },
  not: { waiting: "no server", crash: "never: the row has no end" },
};

/** As often as proper-lockfile may be told to look; its own default is once a second, then more seldom. */
export const RETRY = { forever: true, factor: 1, minTimeout: 10, maxTimeout: 10 };

const properLockfile = {
  async open({ folder }) {
    const { default: lockfile } = await import("proper-lockfile");
    return {
      take(name) {
        const file = join(folder, name.replaceAll(/[^\w.-]/g, "_"));
        writeFileSync(file, "", { flag: "a" });
        return lockfile.lock(file, { retries: RETRY });
      },
      close() {},
    };
  },
  not: { waiting: "no server" },
};

export const sqlite = {
  async start() {
    const folder = newFolder();
    const stop = () => rmSync(folder, { recursive: true, force: true });
    process.once("exit", stop);
    return { at: { url: `sqlite:${join(folder, "locks.db")}`, folder }, stop };
  },
  contestants: {
    holdfast: { ...holdfast, not: { waiting: "no server" } },
    "bare table": bareTable,
    "proper-lockfile": properLockfile,
  },
};
