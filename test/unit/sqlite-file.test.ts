import { execFileSync } from "node:child_process";
import {
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemChance } from "../../src/core/clock.js";
import { EngineRefusedError, InvalidOptionError } from "../../src/core/errors.js";
import { type SqliteDatabase, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { defaultPath, makePrivate } from "../../src/engines/sqlite/path.js";
import { ORDER, ROWS, SQL } from "../../src/engines/sqlite/scripts.generated.js";
import { prepare } from "../../src/engines/sqlite/statements.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import { claimOf, setUmask, sqliteRig } from "./sqlite-rig.js";

/** Why this path is refused. */
async function refused(target: string | SqliteDatabase, options = {}): Promise<string> {
  const engine = sqliteEngine(target, options);
  const error: unknown = await engine.ready().then(
    () => new Error("it was accepted"),
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(EngineRefusedError);
  await engine[Symbol.asyncDispose]();
  return (error as Error).message;
}

describe("the file", () => {
  test("after a restart of the machine nobody knows since when a claim waits or holds", async () => {
    const { open, clock } = sqliteRig();
    const { engine: before } = await open();
    for (const [name, id] of [
      ["queue", "holder"],
      ["queue", "waiter"],
      ["alone", "sole"],
    ] as const)
      await before.claim(claimOf(name, id));
    await before[Symbol.asyncDispose]();
    const { engine } = await open({ boot: "another" });
    await clock.advance(3);
    const [alone, queue] = [await stateOf(engine, "alone"), await stateOf(engine, "queue")];
    expect(alone?.holders.map(({ heldMs }) => heldMs)).toEqual([undefined]);
    expect([queue?.holders[0]?.heldMs, queue?.waiters[0]?.waitingMs]).toEqual([undefined, undefined]);
    expect(await engine.release({ name: "queue", id: "holder" })).toBe("released");
    expect((await stateOf(engine, "queue"))?.holders.map(({ heldMs }) => heldMs)).toEqual([0]);
  });

  test("a database of another program is refused and not touched", async () => {
    const rig = sqliteRig();
    const other = join(rig.folder, "other.db");
    const theirs = rig.raw(other);
    theirs.exec("CREATE TABLE invoice (id INTEGER); INSERT INTO invoice VALUES (1)");
    const before = readFileSync(other);
    expect(await refused(other)).toMatch(/other\.db is a database of another program.*a file of their own/);
    expect(readFileSync(other)).toEqual(before);
    theirs.exec("PRAGMA user_version = 3; PRAGMA application_id = 77");
    expect(await refused(other)).toMatch(/another program/);
    expect(await refused(theirs)).toMatch(/another program/);
  });

  test("a file that is no database, or a broken one, is refused with what to do, and not touched", async () => {
    const rig = sqliteRig();
    const text = join(rig.folder, "notes.txt");
    writeFileSync(text, "These are not locks.\n".repeat(100));
    expect(await refused(text)).toMatch(/notes\.txt.*Choose another path/);
    expect(readFileSync(text, "utf8")).toBe("These are not locks.\n".repeat(100));
    const { engine } = await rig.open();
    for (let n = 0; n < 100; n += 1) await engine.claim(claimOf(`name-${n}`, "id"));
    await engine[Symbol.asyncDispose]();
    rig.raw().exec("PRAGMA wal_checkpoint(TRUNCATE)");
    const broken = join(rig.folder, "broken.db");
    writeFileSync(broken, readFileSync(rig.path).fill(0xff, 1024, 8192));
    expect(await refused(broken)).toMatch(/broken\.db.*delete it together with its -wal and -shm/);
    const cut = join(rig.folder, "cut.db");
    writeFileSync(cut, readFileSync(rig.path));
    truncateSync(cut, 4000);
    expect(await refused(cut)).toMatch(/cut\.db/);
  });

  test("a file whose layout is too new, or that of 0.1.0, is refused with what to do, and not touched", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    await engine[Symbol.asyncDispose]();
    const file = rig.raw();
    file.exec("PRAGMA user_version = 99");
    // The next one, beside which this one goes on.
    await (await rig.open()).engine[Symbol.asyncDispose]();
    file.exec("UPDATE store SET lowest_version = 98");
    expect(await refused(rig.path)).toMatch(/layout version 98 or 99, .*too old, speaks 2\. Update Holdfast here/);
    file.exec("ALTER TABLE store DROP COLUMN lowest_version; PRAGMA user_version = 1");
    expect(await refused(rig.path)).toMatch(/layout version 1, .*too new, speaks 2\. It was made by 0\.1\.0/);
    expect(Object.values(file.prepare("PRAGMA user_version").get() ?? {})[0]).toBe(1);
  });

  test("a missing folder, a folder for a file, a place where nobody may write", async () => {
    const rig = sqliteRig();
    expect(await refused(join(rig.folder, "no/such/locks.db"))).toMatch(
      /there is no folder .*no\/such.*Make the folder/,
    );
    mkdirSync(join(rig.folder, "a-folder"));
    expect(await refused(join(rig.folder, "a-folder"))).toMatch(/is a folder.*Name a file in it/);
    expect(await refused("/proc/self/locks.db")).toMatch(/locks\.db.*Check that its folder exists/);
  });

  test("what is no regular file, and a loop of links, is refused and not touched", async () => {
    const rig = sqliteRig();
    const fifo = join(rig.folder, "fifo.db");
    execFileSync("mkfifo", [fifo]);
    const loop = join(rig.folder, "loop.db");
    symlinkSync(loop, loop);
    for (const odd of [fifo, "/dev/null"]) expect(await refused(odd)).toMatch(/is not a regular file.*another path/);
    expect(await refused(loop)).toMatch(/ELOOP.*another path/);
    expect(readdirSync(rig.folder).toSorted()).toEqual(["fifo.db", "loop.db"]);
  });

  test("a file that cannot be written refuses whoever asks, at once, and is not asked again", async () => {
    const rig = sqliteRig();
    const other = await rig.open();
    await other.engine.claim(claimOf("m", "held"));
    const database = rig.raw();
    const engine = sqliteEngine(database);
    const locks = await connect(engine);
    // An engine that is never disposed keeps its file's inode, which the next test's file may get.
    onTestFinished(() => locks.close().then(() => engine[Symbol.asyncDispose]()));
    let unavailable = 0;
    locks.on("unavailable", () => (unavailable += 1));
    const hold = await locks.mutex("n").acquire();
    database.exec("PRAGMA query_only = ON");
    const calls = [locks.mutex("m").acquire(), locks.mutex("m").tryAcquire(), hold.release()];
    for (const call of calls) await expect(call).rejects.toThrow(EngineRefusedError);
    expect(unavailable).toBe(0);
    database.exec("PRAGMA query_only = OFF");
  });

  test("a database that cannot be written, or is in memory, is refused", async () => {
    const rig = sqliteRig();
    await rig.open();
    const readonly = rig.raw();
    readonly.exec("PRAGMA query_only = ON");
    const engine = sqliteEngine(readonly);
    await expect(engine.claim(claimOf("m", "id"))).rejects.toThrow(/Every program that takes locks has to write/);
    await engine[Symbol.asyncDispose]();
    expect(await refused(new Database(":memory:"))).toMatch(/in memory/);
    expect(() => sqliteEngine(rig.path, { machin: 1 } as never)).toThrow(InvalidOptionError);
    await expect(sqliteEngine(42 as never).ready()).rejects.toThrow(InvalidOptionError);
  });

  test("a network file system is refused", async () => {
    const rig = sqliteRig();
    const machine = rig.machine({ networkFileSystem: () => "nfs" });
    expect(await refused(rig.path, { machine })).toMatch(/network file system \(nfs\).*Use a local folder/);
    expect(rig.machine().networkFileSystem(rig.folder)).toBeNull();
  });

  test("a file that is deleted or replaced while it is in use grants nothing any more", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    await engine.claim(claimOf("m", "id"));
    renameSync(rig.path, `${rig.path}.old`);
    await rig.clock.advance(200);
    await expect(engine.claim(claimOf("n", "id"))).rejects.toThrow(/was deleted or replaced.*Restart the programs/);
    const next = await rig.open();
    expect((await next.engine.claim(claimOf("m", "id2"))).kind).toBe("granted");
    await expect(engine.renew([{ name: "m", id: "id" }])).rejects.toBeInstanceOf(EngineRefusedError);
    // What is read there never changes any more: whoever waits for that would wait for ever.
    await expect(engine.cells?.read("cell")).rejects.toBeInstanceOf(EngineRefusedError);
  });

  test("a file that is open through another SQLite library in this process is refused", async () => {
    const rig = sqliteRig();
    const { engine } = await rig.open();
    class Wrapped {
      readonly #database = rig.raw();
      exec = (sql: string): unknown => this.#database.exec(sql);
      prepare = (sql: string) => this.#database.prepare(sql);
      close = (): void => {};
    }
    expect(await refused(new Wrapped())).toMatch(/through another SQLite library/);
    await engine[Symbol.asyncDispose]();
    const alone = sqliteEngine(new Wrapped());
    await alone.ready();
    await alone[Symbol.asyncDispose]();
  });

  test("a database that was handed in stays open, and works like a path", async () => {
    const rig = sqliteRig();
    const [mine, other] = [rig.raw(), await rig.open()];
    const engine = sqliteEngine(mine);
    expect((await engine.claim(claimOf("m", "id"))).kind).toBe("granted");
    expect((await other.engine.claim(claimOf("m", "x", { wait: false }))).kind).toBe("busy");
    await engine[Symbol.asyncDispose]();
    expect(mine.prepare("SELECT 1 AS one").get()).toMatchObject({ one: 1 });
  });
});

describe("the default file", () => {
  test("follows XDG: an absolute XDG_STATE_HOME, else ~/.local/state", () => {
    expect(defaultPath({ XDG_STATE_HOME: "/srv/state" })).toBe("/srv/state/holdfast/locks.db");
    const home = join(homedir(), ".local/state/holdfast/locks.db");
    expect(defaultPath({ XDG_STATE_HOME: "relative" })).toBe(home);
    expect(defaultPath({})).toBe(home);
  });

  test.skipIf(process.platform === "win32")("is where XDG says although a variable of Windows is set", () => {
    const local = join(homedir(), ".local", "state", "holdfast", "locks.db");
    expect(defaultPath({ LOCALAPPDATA: "/elsewhere" })).toBe(local);
  });

  test("connect() without a URL makes it, for its owner only", async () => {
    const rig = sqliteRig();
    const { XDG_STATE_HOME, HOLDFAST_URL } = process.env;
    onTestFinished(() => {
      for (const [key, value] of Object.entries({ XDG_STATE_HOME, HOLDFAST_URL })) {
        if (value === undefined) delete process.env[key];
        else process.env[key] = value;
      }
    });
    delete process.env.HOLDFAST_URL;
    process.env.XDG_STATE_HOME = rig.folder;
    setUmask(0);
    const locks = await connect();
    const hold = await locks.mutex("m").acquire();
    const mode = (path: string): string => (statSync(join(rig.folder, "holdfast", path)).mode & 0o777).toString(8);
    expect([mode("."), mode("locks.db"), mode("locks.db-wal"), mode("locks.db-mail")]).toEqual([
      "700",
      "600",
      "600",
      "700",
    ]);
    await hold.release();
    await locks.close();
    process.env.XDG_STATE_HOME = "/dev/null";
    await expect(connect()).rejects.toThrow(/set HOLDFAST_URL, or XDG_STATE_HOME/);
  });

  test("a folder for it that others may enter is closed to them", async () => {
    const rig = sqliteRig();
    const folder = join(rig.folder, "holdfast");
    mkdirSync(folder);
    for (const open of [0o777, 0o750, 0o701]) {
      chmodSync(folder, open);
      makePrivate(join(folder, "locks.db"), new SystemChance());
      expect((statSync(folder).mode & 0o777).toString(8)).toBe("700");
    }
    // As narrow as its owner made it.
    chmodSync(folder, 0o500);
    makePrivate(join(folder, "locks.db"), new SystemChance());
    expect((statSync(folder).mode & 0o777).toString(8)).toBe("500");
  });

  test.each([
    ["sqlite:", /names no file/],
    ["sqlite::memory:", /shared with no other process/],
    ["sqlite://host/locks.db", /names a host/],
  ])("%s is refused", async (url, problem) => {
    await expect(connect(url)).rejects.toThrow(InvalidOptionError);
    await expect(connect(url)).rejects.toThrow(problem);
  });

  test("sqlite:///path and sqlite:path lead to the same file", async () => {
    const rig = sqliteRig();
    const [a, b] = [await connect(`sqlite://${rig.path}`), await connect(`sqlite:${rig.path}`)];
    const hold = await a.mutex("m").acquire();
    expect(await b.mutex("m").tryAcquire()).toBeNull();
    await hold.release();
    await Promise.all([a.close(), b.close()]);
  });
});

test("every statement has the columns that its header names", async () => {
  const rig = sqliteRig();
  await rig.open();
  const database = rig.raw();
  const statements = prepare(database);
  expect(Object.keys(statements)).toEqual(Object.keys(SQL));
  type Columns = { columns(): { name: string }[] };
  for (const [key, sql] of Object.entries(SQL)) {
    const rowOf = ROWS[key as keyof typeof ROWS];
    const columns = (database.prepare(sql) as unknown as Columns).columns().map(({ name }) => name);
    expect([key, rowOf === null ? [] : Object.keys(rowOf([]))]).toEqual([key, columns]);
  }
});

test("values are bound by their position alone, which all three libraries understand: better-sqlite3 knows no ?1", () => {
  for (const [key, sql] of Object.entries(SQL)) {
    // Without what stands in quotes.
    const marks = sql.replace(/'[^']*'/g, "").match(/[?:@$]\w*/g) ?? [];
    expect([key, new Set(marks)]).toEqual([key, new Set(marks.length === 0 ? [] : ["?"])]);
    const order = ORDER[key as keyof typeof ORDER];
    if (order !== null) expect([key, order.length]).toEqual([key, marks.length]);
  }
});

test("a statement answers about what it is asked, in whatever way it ran before", async () => {
  const rig = sqliteRig();
  const { engine } = await rig.open();
  for (const name of ["a", "b"]) {
    await engine.claim(claimOf(name, "holder", { owner: { client: name, host: name, pid: 1 } }));
    await engine.claim(claimOf(name, "waiter"));
  }
  const sql = prepare(rig.raw());
  expect(sql.holdersFront.all("a", 8)[0]?.owner).toMatch(/"client":"a"/);
  expect(sql.holdersFront.get("b", 1)?.owner).toMatch(/"client":"b"/);
  expect(sql.holdersFront.all("a", 8)[0]?.owner).toMatch(/"client":"a"/);
});

test("without any SQLite the error says what to install", async () => {
  const { installedSqlite, LIBRARIES } = await import("../../src/engines/sqlite/drivers/better-sqlite3.js");
  expect(LIBRARIES[0]).toBe("libsql");
  expect(typeof (await installedSqlite())).toBe("function");
  expect(createRequire(import.meta.url).resolve("libsql")).toBeTruthy();
});
