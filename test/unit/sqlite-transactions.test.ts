import Database from "libsql";
import { describe, expect, onTestFinished, test } from "vitest";
import { ClosedError, EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import type { SqliteDatabase } from "../../src/engines/sqlite/driver.js";
import { failureOf, notOpened, translate } from "../../src/engines/sqlite/errors.js";
import { Transactions } from "../../src/engines/sqlite/transactions.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { watch } from "./rig.js";
import { sqliteRig } from "./sqlite-rig.js";

const failed = (code: object): Error => Object.assign(new Error("what SQLite says"), code);
const [BUSY, FULL] = [failed({ code: "SQLITE_BUSY" }), failed({ code: "SQLITE_FULL" })];

/** A real database whose statements fail as `failing` says, the transactions on it, and the delays that they ask for. */
function rigged() {
  const { path } = sqliteRig();
  const real = new Database(path);
  onTestFinished(() => void real.close());
  const ran: string[] = [];
  const failing = new Map<string, Error[]>();
  const database: SqliteDatabase = {
    exec: (sql) => {
      ran.push(sql);
      const error = failing.get(sql)?.shift();
      if (error !== undefined) throw error;
      return real.exec(sql);
    },
    prepare: (sql) => real.prepare(sql),
    close: () => {},
  };
  database.exec("CREATE TABLE noted (what text)");
  const clock = new FakeClock();
  const delays: number[] = [];
  const timed = Object.assign(Object.create(clock) as FakeClock, {
    now: () => clock.now(),
    after: (ms: number, run: () => void) => (delays.push(ms), clock.after(ms, run)),
    cancel: (timer: object) => clock.cancel(timer),
  });
  const chance = Object.assign(new SeededChance(1), { fraction: () => 1 });
  const transactions = new Transactions(database, path, timed, chance);
  ran.length = 0;
  const note = (what: string) =>
    transactions.write("noting", () => real.prepare("INSERT INTO noted VALUES (?)").run(what));
  const noted = (): unknown[] =>
    (real.prepare("SELECT what FROM noted").all() as { what: string }[]).map(({ what }) => what);
  return { transactions, clock, delays, failing, ran, note, noted, real };
}

describe("what SQLite says", () => {
  test.each([
    ["busy", 5, "SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_SNAPSHOT"],
    ["busy", 6, "SQLITE_LOCKED", "SQLITE_LOCKED_SHAREDCACHE"],
    ["busy", 15, "SQLITE_PROTOCOL"],
    ["readonly", 8, "SQLITE_READONLY", "SQLITE_READONLY_DBMOVED"],
    ["readonly", 3, "SQLITE_PERM"],
    ["cannot open", 14, "SQLITE_CANTOPEN", "SQLITE_CANTOPEN_ISDIR"],
    ["full", 13, "SQLITE_FULL"],
    ["corrupt", 11, "SQLITE_CORRUPT", "SQLITE_CORRUPT_INDEX"],
    ["not a database", 26, "SQLITE_NOTADB"],
    ["other", 1, "SQLITE_ERROR", "SQLITE_CONSTRAINT"],
  ] as const)("is understood as %s by number %i, extended or not, and by name", (failure, number, ...names) => {
    const shapes = [
      { errcode: number },
      { rawCode: number },
      { errcode: number | (3 << 8) },
      { rawCode: number | (9 << 8) },
    ];
    for (const shape of [...shapes, { code: "ERR_SQLITE_ERROR", errcode: number }, { code: "ERR", rawCode: number }])
      expect(failureOf(failed(shape))).toBe(failure);
    for (const code of names) expect(failureOf(failed({ code }))).toBe(failure);
    // A number says more than a name, and no number than zero.
    expect(failureOf(failed({ code: names[0], errcode: 0, rawCode: 0 }))).toBe(failure);
  });

  test("is nothing for what is no error of SQLite", () => {
    const others = [
      failed({}),
      failed({ code: "ENOENT" }),
      failed({ code: 5 }),
      failed({ errcode: -1 }),
      "SQLITE_BUSY",
      null,
    ];
    for (const other of others) {
      expect(failureOf(other)).toBeNull();
      expect(translate("/locks.db", "claiming", other)).toBe(other);
    }
  });

  test.each([
    [8, EngineRefusedError, /check the rights/],
    [14, EngineRefusedError, /Check that its folder exists/],
    [11, EngineRefusedError, /delete it together with its -wal and -shm/],
    [26, EngineRefusedError, /It was left as it is/],
    [13, EngineUnavailableError, /free some space/],
    [1, EngineUnavailableError, /what SQLite says/],
    [5, EngineUnavailableError, /what SQLite says/],
  ])("number %i is told as what it means for the caller", (errcode, kind, words) => {
    const error = failed({ errcode });
    const told = translate("/locks.db", "claiming", error);
    expect(told).toBeInstanceOf(kind);
    const { message, cause } = told as Error;
    const all = `${message} ${String(cause)}`;
    expect(all).toMatch(words);
    // Which file it is, unless SQLite may work at the next attempt; and SQLite's own words are kept.
    expect(all.includes("/locks.db")).toBe(kind === EngineRefusedError || errcode === 13);
    expect([cause, (cause as Error).cause]).toContain(error);
    expect(notOpened("/locks.db", error)).toBeInstanceOf(EngineRefusedError);
    expect(String(notOpened("/locks.db", error).cause)).toContain("/locks.db: what SQLite says");
  });
});

describe("a file that is busy", () => {
  test("is asked again three times at once, then with a growing backoff that has a limit", async () => {
    const { clock, delays, failing, note, noted } = rigged();
    failing.set(
      "BEGIN IMMEDIATE",
      Array.from({ length: 15 }, () => BUSY),
    );
    const writing = watch(note("a"));
    for (let n = 0; n < 10; n += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(delays).toEqual([1]);
    for (let n = 0; n < 2000 && writing.state === "pending"; n += 1) await clock.advance(1);
    expect(delays).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 250, 250, 250, 250]);
    expect(noted()).toEqual(["a"]);
    // It has been written: the next one that finds the file busy is eager again.
    delays.length = 0;
    failing.set("BEGIN IMMEDIATE", [BUSY, BUSY]);
    await note("b");
    expect([delays, noted()]).toEqual([[], ["a", "b"]]);
  });

  test.each([
    [4_500, async <T>(_: Transactions, run: () => Promise<T>) => run()],
    [15_000, async <T>(transactions: Transactions, run: () => Promise<T>) => transactions.opening(run)],
  ] as const)("is an unknown outcome after %i ms, and the caller is told of the limit", async (limitMs, within) => {
    const { transactions, clock, failing, note, noted } = rigged();
    failing.set(
      "BEGIN IMMEDIATE",
      Array.from({ length: 500 }, () => BUSY),
    );
    const writing = watch(within(transactions, () => note("a")));
    await settle();
    for (let ms = 0; ms < limitMs - 250; ms += 50) await clock.advance(50);
    expect(writing.state).toBe("pending");
    for (let n = 0; n < 11; n += 1) await clock.advance(50);
    expect(writing.error).toBeInstanceOf(EngineUnavailableError);
    expect(String((writing.error as Error).cause)).toContain(`for ${limitMs} ms`);
    failing.clear();
    await note("b");
    expect(noted()).toEqual(["b"]);
  });

  test("keeps the order of those who wait, in turns that leave time for others", async () => {
    const { failing, note, noted } = rigged();
    failing.set("BEGIN IMMEDIATE", [BUSY]);
    const all = Array.from({ length: 70 }, (_, n) => String(n));
    const writing = watch(Promise.all(all.map(note)));
    const turns: number[] = [];
    while (writing.state === "pending") {
      await new Promise((resolve) => setImmediate(resolve));
      turns.push(noted().length);
    }
    expect(noted()).toEqual(all);
    expect(new Set(turns)).toEqual(new Set([32, 64, 70]));
  });

  test("fails those who still wait when it is closed, and whoever comes later", async () => {
    const { transactions, clock, failing, note, noted, ran } = rigged();
    failing.set(
      "BEGIN IMMEDIATE",
      Array.from({ length: 500 }, () => BUSY),
    );
    const waiting = [watch(note("a")), watch(note("b"))];
    for (let n = 0; n < 5; n += 1) await new Promise((resolve) => setImmediate(resolve));
    expect(clock.pending).toBe(1);
    transactions.close();
    await settle();
    expect(waiting.map(({ error }) => error)).toEqual([expect.any(ClosedError), expect.any(ClosedError)]);
    expect(clock.pending).toBe(0);
    const tried = ran.length;
    await expect(note("c")).rejects.toBeInstanceOf(ClosedError);
    expect([ran.length, noted()]).toEqual([tried, []]);
  });
});

describe("a step that fails", () => {
  test("for want of space is tried once more after a checkpoint, which makes room in the log", async () => {
    const { failing, note, noted, ran } = rigged();
    failing.set("COMMIT", [FULL]);
    await note("a");
    expect(noted()).toEqual(["a"]);
    const checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
    expect(ran).toEqual(["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", checkpoint, "BEGIN IMMEDIATE", "COMMIT"]);
    failing.set("COMMIT", [FULL, FULL]);
    await expect(note("b")).rejects.toBeInstanceOf(EngineUnavailableError);
    failing.set("COMMIT", [FULL]);
    failing.set(checkpoint, [BUSY]);
    const error: unknown = await note("c").catch((cause: unknown) => cause);
    expect(String((error as Error).cause)).toContain("free some space");
    expect(noted()).toEqual(["a"]);
  });

  test("is rolled back, also where SQLite has done so itself; a rollback that fails is no silence", async () => {
    const { transactions, failing, note, noted, real, ran } = rigged();
    const wrong = new TypeError("a bug");
    const step = (): never => {
      real.prepare("INSERT INTO noted VALUES ('half')").run();
      throw wrong;
    };
    await expect(transactions.write("noting", step)).rejects.toBe(wrong);
    await expect(
      transactions.read("reading", () => {
        throw wrong;
      }),
    ).rejects.toBe(wrong);
    expect(() =>
      transactions.readNow(() => {
        throw wrong;
      }),
    ).toThrow(wrong);
    expect(noted()).toEqual([]);
    const over = (): never => {
      real.exec("ROLLBACK");
      throw wrong;
    };
    await expect(transactions.write("noting", over)).rejects.toBe(wrong);
    failing.set("ROLLBACK", [failed({ code: "SQLITE_IOERR" })]);
    await expect(transactions.write("noting", step)).rejects.toBeInstanceOf(EngineUnavailableError);
    real.exec("ROLLBACK");
    // What never began is not rolled back.
    ran.length = 0;
    failing.set("BEGIN IMMEDIATE", [failed({ code: "SQLITE_IOERR" })]);
    await expect(note("a")).rejects.toBeInstanceOf(EngineUnavailableError);
    expect(ran).toEqual(["BEGIN IMMEDIATE"]);
    await note("b");
    expect(noted()).toEqual(["b"]);
  });
});
