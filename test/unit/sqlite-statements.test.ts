import { describe, expect, test } from "vitest";
import type { ReleaseRequest } from "../../src/core/engine.js";
import { READERS_MAX } from "../../src/core/limits.js";
import { type SqliteDatabase, sqliteEngine } from "../../src/engines/sqlite/index.js";
import { claimOf, sqliteRig } from "./sqlite-rig.js";

/** Engines on one file that count what SQLite is asked to run. */
async function counted() {
  const rig = sqliteRig();
  let ran: string[] = [];
  const run = <T>(sql: string, step: () => T): T => {
    ran.push(sql.trim().split(/\s+/, 3).join(" "));
    return step();
  };
  const open = async () => {
    const real = rig.raw();
    const database: SqliteDatabase = {
      exec: (sql) => run(sql, () => real.exec(sql)),
      prepare: (sql) => {
        const statement = real.prepare(sql);
        return {
          run: (...values) => run(sql, () => statement.run(...values)),
          get: (...values) => run(sql, () => statement.get(...values)),
          all: (...values) => run(sql, () => statement.all(...values)),
          ...(statement.raw === undefined ? {} : { raw: (arrays: boolean) => statement.raw?.(arrays) }),
        };
      },
      close: () => {},
    };
    const engine = sqliteEngine(database, { clock: rig.clock, machine: rig.machine() });
    await engine.ready();
    return engine;
  };
  /** How many statements this takes, begin and commit included, and how many transactions. */
  const count = async (work: () => Promise<unknown>) => {
    ran = [];
    await work();
    return { statements: ran.length, transactions: ran.filter((sql) => sql === "COMMIT").length };
  };
  const [one, two] = [await open(), await open()];
  const dispose = async () => {
    for (const engine of [one, two]) await engine[Symbol.asyncDispose]();
  };
  return { one, two, count, dispose };
}

const ids = (count: number, from = 0): string[] => Array.from({ length: count }, (_, n) => `id-${from + n}`);
const leaving = (id: string, over: Partial<ReleaseRequest> = {}): ReleaseRequest => ({
  name: "n",
  id,
  tombstone: "never",
  ...over,
});

describe("what SQLite is asked to run", () => {
  test("for a lock that nobody else wants: one row is read and written", async () => {
    const { one, count, dispose } = await counted();
    expect(await count(() => one.claim(claimOf("n", "a")))).toEqual({ statements: 4, transactions: 1 });
    expect(await count(() => one.renew([{ name: "n", id: "a" }]))).toEqual({ statements: 4, transactions: 1 });
    expect(await count(() => one.release(leaving("a")))).toEqual({ statements: 4, transactions: 1 });
    await dispose();
  });

  test("for many locks in one turn: one transaction, and two statements for each", async () => {
    const { one, count, dispose } = await counted();
    const names = Array.from({ length: 20 }, (_, n) => `n${n}`);
    const claims = () => Promise.all(names.map((name) => one.claim(claimOf(name, "a"))));
    expect(await count(claims)).toEqual({ statements: 42, transactions: 1 });
    const renewals = () => one.renew(names.map((name) => ({ name, id: "a" })));
    expect(await count(renewals)).toEqual({ statements: 42, transactions: 1 });
    const releases = () => Promise.all(names.map((name) => one.release(leaving("a", { name }))));
    expect(await count(releases)).toEqual({ statements: 42, transactions: 1 });
    await dispose();
  });

  test("for a lock that others hold and wait for", async () => {
    const { one, two, count, dispose } = await counted();
    await one.claim(claimOf("n", "held"));
    // The only claim so far moves to a row of its own.
    expect(await count(() => two.claim(claimOf("n", "first")))).toEqual({ statements: 7, transactions: 1 });
    expect(await count(() => two.claim(claimOf("n", "second")))).toEqual({ statements: 9, transactions: 1 });
    const four = () => Promise.all(ids(4).map((id) => one.claim(claimOf("n", id))));
    expect(await count(four)).toEqual({ statements: 15, transactions: 1 });
    expect(await count(() => two.renew([{ name: "n", id: "second" }]))).toEqual({ statements: 6, transactions: 1 });
    expect(await count(() => two.release(leaving("second")))).toEqual({ statements: 6, transactions: 1 });
    expect(await count(() => one.release(leaving("held")))).toEqual({ statements: 8, transactions: 1 });
    await dispose();
  });

  test("for a run of releases within one client: only whoever comes last is let in", async () => {
    const { one, two, count, dispose } = await counted();
    await one.claim(claimOf("n", "id-0"));
    for (const id of ids(3, 1)) await one.claim(claimOf("n", id));
    await two.claim(claimOf("n", "next"));
    const run = () => Promise.all(ids(4).map((id, n) => one.release(leaving(id, n < 3 ? { to: `id-${n + 1}` } : {}))));
    expect(await count(run)).toEqual({ statements: 10, transactions: 1 });
    expect(await two.renew([{ name: "n", id: "next" }])).toMatchObject([{ kind: "granted" }]);
    await dispose();
  });

  test("what one request read of a name, the next one in its transaction knows as it is by then", async () => {
    const { one, two, dispose } = await counted();
    const rw = { capacity: READERS_MAX };
    await two.claim(claimOf("rw", "reader", { ...rw, owner: { client: "two", host: "h", pid: 1 } }));
    const answers = await Promise.all([
      one.claim(claimOf("rw", "writer", { ...rw, units: READERS_MAX })),
      one.claim(claimOf("rw", "later", rw)),
      one.release({ name: "rw", id: "reader" }),
      one.claim(claimOf("rw", "last", rw)),
      one.release({ name: "rw", id: "last" }),
      one.claim(claimOf("rw", "last", rw)),
      one.claim(claimOf("rw", "end", rw)),
      one.renew([{ name: "rw", id: "writer" }]),
    ]);
    expect(answers).toMatchObject([
      { kind: "queued", holder: { client: "two" } },
      { kind: "queued", holder: { client: "two" }, ahead: "writer" },
      "released",
      // The reader has left, and the writer was let in.
      { kind: "queued", holder: { client: "c" }, ahead: "later" },
      "released",
      // By a tombstone that was written in this transaction.
      { kind: "gone" },
      { kind: "queued", ahead: "later" },
      [{ kind: "granted" }],
    ]);
    await dispose();
  });
});
