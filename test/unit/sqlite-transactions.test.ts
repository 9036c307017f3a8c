import { renameSync } from "node:fs";
import Database from "libsql";
import { describe, expect, onTestFinished, test } from "vitest";
import { ClosedError, EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import type { SqliteDatabase } from "../../src/engines/sqlite/driver.js";
import { failureOf, notOpened, translate } from "../../src/engines/sqlite/errors.js";
import { Transactions, type Unit } from "../../src/engines/sqlite/transactions.js";
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
  /** Requests that share a transaction, and what happened to their unit and to each of them. */
  const events: string[] = [];
  const unit: Unit = {
    begin: () => void events.push("begin"),
    finish: () => void events.push("finish"),
    committed: () => void events.push("committed"),
  };
  const share = (what: string, step: () => void = () => {}) => {
    const run = (): string => {
      real.prepare("INSERT INTO noted VALUES (?)").run(what);
      step();
      events.push(`ran ${what}`);
      return what;
    };
    return transactions.write(`sharing ${what}`, run, () => void events.push(`told ${what}`), unit);
  };
  const noted = (): unknown[] =>
    (real.prepare("SELECT what FROM noted").all() as { what: string }[]).map(({ what }) => what);
  return { transactions, clock, delays, failing, ran, note, noted, real, share, events, unit, path };
}

const ONE = ["BEGIN IMMEDIATE", "COMMIT"];
/** A turn of the event loop. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

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
    expect([...new Set(turns)]).toEqual([0, 32, 64, 70]);
  });

  test("is asked by one try at a time, also when an answer has led to another request", async () => {
    const { transactions, clock, failing, note, ran } = rigged();
    failing.set("BEGIN IMMEDIATE", [undefined as unknown as Error, ...Array.from({ length: 500 }, () => BUSY)]);
    const more: { state: string }[] = [];
    const first = transactions.write(
      "noting",
      () => {},
      () => void more.push(watch(note("b"))),
    );
    more.push(watch(note("a")));
    await first;
    ran.length = 0;
    for (let n = 0; n < 10; n += 1) await turn();
    // Three times at once; the fourth waits for its backoff.
    expect([ran.length, clock.pending]).toEqual([3, 1]);
    transactions.close();
    await settle();
    expect([clock.pending, more.map(({ state }) => state)]).toEqual([0, ["failed", "failed"]]);
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

test("who asks again at every answer leaves time for timers and for what comes from outside", async () => {
  const { note, noted } = rigged();
  const turns: number[] = [];
  const count = (): void => {
    turns.push(noted().length);
    next = setImmediate(count);
  };
  let next = setImmediate(count);
  for (let n = 0; n < 100; n += 1) await note(String(n));
  clearImmediate(next);
  expect(turns).toEqual([32, 64, 96]);
});

test("a listener that throws when others are told keeps nobody waiting", async () => {
  const { share, unit, noted } = rigged();
  const wrong = new TypeError("a bug");
  let told = 0;
  unit.committed = () => {
    told += 1;
    if (told === 1) throw wrong;
  };
  const uncaught: unknown[] = [];
  process.setUncaughtExceptionCaptureCallback((error) => uncaught.push(error));
  onTestFinished(() => process.setUncaughtExceptionCaptureCallback(null));
  const all = Array.from({ length: 40 }, (_, n) => String(n));
  const telling = watch(Promise.all(all.map((what) => share(what))));
  for (let n = 0; n < 5; n += 1) await turn();
  expect([telling.state, noted(), uncaught]).toEqual(["done", all, [wrong]]);
});

test("what only reads is run by itself: one that fails fails alone, and one that finds the file busy waits alone", async () => {
  const { transactions, failing } = rigged();
  const runs: string[] = [];
  const read = (what: string, step: () => void = () => {}) =>
    transactions.read(`reading ${what}`, () => (step(), runs.push(what), what));
  const wrong = new TypeError("a bug");
  const fail = (): never => {
    throw wrong;
  };
  failing.set("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1", [
    undefined as unknown as Error,
    undefined as unknown as Error,
    BUSY,
  ]);
  const told = await Promise.allSettled([read("a"), read("b", fail), read("c"), read("d")]);
  expect(told.map((one) => (one.status === "fulfilled" ? one.value : one.reason))).toEqual(["a", wrong, "c", "d"]);
  expect(runs).toEqual(["a", "c", "d"]);
});

describe("requests that share a transaction", () => {
  test("are those of one turn of the event loop, in order; each is told after the commit, before anything is told to others", async () => {
    const { share, noted, ran, events } = rigged();
    const answers = await Promise.all(["a", "b", "c"].map((what) => share(what)));
    expect(answers).toEqual(["a", "b", "c"]);
    expect(noted()).toEqual(["a", "b", "c"]);
    expect(ran).toEqual(ONE);
    const ordered = ["begin", "ran a", "ran b", "ran c", "finish", "told a", "told b", "told c", "committed"];
    expect(events).toEqual(ordered);
    // What is asked because of an answer, in the same turn, shares the next one.
    ran.length = 0;
    await Promise.all(["d", "e"].map(async (what) => (await share(what), share(`${what}${what}`))));
    expect(noted().slice(3)).toEqual(["d", "e", "dd", "ee"]);
    expect(ran).toEqual([...ONE, ...ONE]);
  });

  test("are those that came while the file was busy, and each waits for as long as it may by itself", async () => {
    const { share, noted, ran, failing, clock } = rigged();
    const busy = Array.from({ length: 500 }, () => BUSY);
    failing.set("BEGIN IMMEDIATE", busy);
    const first = watch(share("a"));
    await settle();
    for (let ms = 0; ms < 4_000; ms += 50) await clock.advance(50);
    const second = watch(share("b"));
    for (let ms = 0; ms < 1_000; ms += 50) await clock.advance(50);
    expect(first.error).toBeInstanceOf(EngineUnavailableError);
    expect(second.state).toBe("pending");
    const third = watch(share("c"));
    busy.length = 0;
    ran.length = 0;
    for (let ms = 0; ms < 1_000; ms += 50) await clock.advance(50);
    expect([second.state, third.state, noted()]).toEqual(["done", "done", ["b", "c"]]);
    expect(ran).toEqual(ONE);
  });

  test("are not too many, so that others have their turn; others' requests are kept apart, in order", async () => {
    const { share, note, noted, ran } = rigged();
    const all = Array.from({ length: 70 }, (_, n) => String(n));
    const writing = watch(Promise.all(all.map((what) => share(what))));
    const turns: number[] = [];
    while (writing.state === "pending") {
      await turn();
      turns.push(noted().length);
    }
    expect([...new Set(turns)]).toEqual([32, 64, 70]);
    expect(ran).toEqual([...ONE, ...ONE, ...ONE]);
    expect(noted()).toEqual(all);
    ran.length = 0;
    await Promise.all([share("a"), share("b"), note("c"), note("d"), share("e")]);
    expect(noted().slice(70)).toEqual(["a", "b", "c", "d", "e"]);
    expect(ran).toEqual([...ONE, ...ONE, ...ONE, ...ONE]);
  });

  test("one that fails fails alone: the others are run again, each by itself, and nothing of it stays", async () => {
    const { share, noted, ran, events } = rigged();
    const wrong = new TypeError("a bug");
    const constraint = failed({ code: "SQLITE_CONSTRAINT" });
    const fail = (error: Error) => (): never => {
      throw error;
    };
    const told = await Promise.allSettled([
      share("a"),
      share("b", fail(wrong)),
      share("c"),
      share("d", fail(constraint)),
    ]);
    expect(told.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "rejected"]);
    expect((told[1] as PromiseRejectedResult).reason).toBe(wrong);
    expect((told[3] as PromiseRejectedResult).reason).toMatchObject({
      name: "EngineUnavailableError",
      cause: constraint,
    });
    expect(String((told[3] as PromiseRejectedResult).reason)).toContain("sharing d");
    expect(noted()).toEqual(["a", "c"]);
    const undone = ["BEGIN IMMEDIATE", "ROLLBACK"];
    expect(ran).toEqual([...undone, ...ONE, ...undone, ...ONE, ...undone]);
    expect(events.filter((event) => /told|committed/.test(event))).toEqual([
      "told a",
      "committed",
      "told c",
      "committed",
    ]);
  });

  test("what all of them share may fail too: each is then run with what is its own", async () => {
    const { share, noted, unit } = rigged();
    let runs = 0;
    unit.finish = () => {
      runs += 1;
      if (runs === 1 || runs === 3) throw new TypeError("a bug");
    };
    const told = await Promise.allSettled([share("a"), share("b"), share("c")]);
    expect(told.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect(noted()).toEqual(["a", "c"]);
  });

  test("a file that becomes busy while they are run one by one: the rest waits, and keeps its order", async () => {
    const { share, noted, failing, events } = rigged();
    const begins = failing.set("BEGIN IMMEDIATE", []).get("BEGIN IMMEDIATE") as Error[];
    let first = true;
    const wrong = new TypeError("a bug");
    const fail = (): never => {
      // Somebody else writes once the first two of them were run by themselves.
      if (first) begins.push(undefined as unknown as Error, undefined as unknown as Error, BUSY);
      first = false;
      throw wrong;
    };
    const told = await Promise.allSettled([share("a"), share("b", fail), share("c"), share("d")]);
    expect(told.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled"]);
    expect(noted()).toEqual(["a", "c", "d"]);
    expect(events.filter((event) => event.startsWith("told"))).toEqual(["told a", "told c", "told d"]);
  });

  test("a commit that fails leaves the outcome of each of them unknown: none is run again, each has an error of its own", async () => {
    const { share, noted, ran, failing, events } = rigged();
    failing.set("COMMIT", [failed({ code: "SQLITE_IOERR_WRITE" })]);
    const told = await Promise.allSettled([share("a"), share("b")]);
    const errors = told.map((one) => (one as PromiseRejectedResult).reason as Error);
    for (const error of errors) expect(error).toBeInstanceOf(EngineUnavailableError);
    expect(errors.map(({ message }) => /sharing (\w)/.exec(message)?.[1])).toEqual(["a", "b"]);
    expect(ran).toEqual(["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"]);
    expect([noted(), events.filter((event) => /told|committed/.test(event))]).toEqual([[], []]);
  });

  test("a rollback that fails is told to all of them, and none is run again inside what it left open", async () => {
    const { share, failing, real, ran } = rigged();
    failing.set("ROLLBACK", [failed({ code: "SQLITE_IOERR" })]);
    const fail = (): never => {
      throw new TypeError("a bug");
    };
    const told = await Promise.allSettled([share("a"), share("b", fail)]);
    for (const one of told) expect((one as PromiseRejectedResult).reason).toBeInstanceOf(EngineUnavailableError);
    expect(ran).toEqual(["BEGIN IMMEDIATE", "ROLLBACK"]);
    real.exec("ROLLBACK");
  });

  test("a disk that is full, and a file that was refused, are told to each of them", async () => {
    const { share, noted, failing, ran } = rigged();
    failing.set("COMMIT", [FULL]);
    await Promise.all([share("a"), share("b")]);
    expect(noted()).toEqual(["a", "b"]);
    const checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
    expect(ran).toEqual(["BEGIN IMMEDIATE", "COMMIT", "ROLLBACK", checkpoint, ...ONE]);
    failing.set("BEGIN IMMEDIATE", [failed({ code: "SQLITE_CORRUPT" })]);
    const told = await Promise.allSettled([share("c"), share("d")]);
    for (const one of told) expect((one as PromiseRejectedResult).reason).toBeInstanceOf(EngineRefusedError);
    expect(noted()).toEqual(["a", "b"]);
  });

  test("a file that was replaced, and a library that fails by itself, are an error of its own for each of them", async () => {
    const { share, noted, failing, path, clock } = rigged();
    const errorsOf = async () => {
      const told = await Promise.allSettled([share("a"), share("b"), share("c")]);
      return told.map((one) => (one as PromiseRejectedResult).reason as Error);
    };
    failing.set("BEGIN IMMEDIATE", [new TypeError("The database connection is not open")]);
    const closed = await errorsOf();
    for (const error of closed) expect(error).toBeInstanceOf(EngineUnavailableError);
    expect(closed.map(({ message }) => /sharing (\w)/.exec(message)?.[1])).toEqual(["a", "b", "c"]);
    renameSync(path, `${path}-old`);
    await clock.advance(100);
    const replaced = await errorsOf();
    for (const error of replaced) expect(error).toBeInstanceOf(EngineRefusedError);
    expect(String(replaced[0]?.cause)).toContain(`${path} was deleted or replaced while it was in use`);
    expect([new Set(closed).size, new Set(replaced).size]).toEqual([3, 3]);
    renameSync(`${path}-old`, path);
    await share("d");
    expect(noted()).toEqual(["d"]);
  });

  test("one whose telling fails is told so, and the others are not", async () => {
    const { transactions, unit, share, noted } = rigged();
    const wrong = new TypeError("a bug");
    const telling = transactions.write(
      "telling",
      () => {},
      () => {
        throw wrong;
      },
      unit,
    );
    const told = await Promise.allSettled([share("a"), telling, share("b")]);
    expect(told.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled"]);
    expect((told[1] as PromiseRejectedResult).reason).toBe(wrong);
    expect(noted()).toEqual(["a", "b"]);
  });
});
