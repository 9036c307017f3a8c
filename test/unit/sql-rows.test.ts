import { describe, expect, test } from "vitest";
import { InvalidOptionError, MisuseError } from "../../src/core/errors.js";
import { pageOf } from "../../src/engines/mysql/inspect.js";
import * as mysql from "../../src/engines/mysql/rows.js";
import * as postgres from "../../src/engines/postgres/rows.js";
import { rowLocks } from "../../src/sql/rows.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** Locks on a program's own rows: what is sent for them, and what becomes of each answer. What databases do with it is in test/faults. */

type Sent = [text: string, ...values: unknown[]];
type Answer = { rows?: unknown[]; changed?: number; command?: string } | Error;

/** A connection that answers one statement after the other, and notes them. */
function connection(isPool: boolean, ...answers: Answer[]) {
  const sent: Sent[] = [];
  const locks = rowLocks<null>(() => ({
    isPool,
    quote: (name) => `<${name}>`,
    place: (number) => `$${number}`,
    run: async (text, values) => {
      sent.push([text, ...values]);
      const answer = answers.shift() ?? {};
      if (answer instanceof Error) throw answer;
      return { rows: [], changed: 0, ...answer };
    },
  }));
  return { sent, locks };
}

const ROW = { table: "shop.stock", key: { shop: 7, item: "a" } };
const SELECT = "SELECT * FROM <shop>.<stock> WHERE <shop> = $1 AND <item> = $2";

describe("a row that is locked", () => {
  test.each([
    [undefined, " FOR UPDATE"],
    ["wait", " FOR UPDATE"],
    ["nowait", " FOR UPDATE NOWAIT"],
    ["skip", " FOR UPDATE SKIP LOCKED"],
  ] as const)("busy: %s", async (busy, suffix) => {
    const { sent, locks } = connection(false, { rows: [{ a: 1 }, { a: 2 }] });
    expect(await locks.forUpdate(null, { ...ROW, ...(busy === undefined ? {} : { busy }) })).toEqual({ a: 1 });
    expect(sent).toEqual([[`${SELECT}${suffix}`, 7, "a"]]);
    expect(await locks.forUpdate(null, ROW)).toBeNull();
  });

  test("what names no row is refused before anything is sent", async () => {
    const { sent, locks } = connection(false);
    for (const wrong of [
      { ...ROW, busy: "later" },
      { ...ROW, key: {} },
      { ...ROW, table: "" },
      { ...ROW, table: 1 },
    ]) {
      await expect(locks.forUpdate(null, wrong as never)).rejects.toBeInstanceOf(InvalidOptionError);
    }
    expect(sent).toEqual([]);
  });
});

describe("a row that is changed over the version that was read", () => {
  test("the version is compared and counted by the database, whatever the callback says of it", async () => {
    const { sent, locks } = connection(false, { rows: [{ left: 2, version: "4" }] }, { changed: 1 });
    const answer = await locks.optimistic(null, ROW, () => ({ left: 1, note: "n", version: 99 }));
    expect(answer).toEqual({ kind: "written", row: { left: 1, note: "n", version: 5 }, attempts: 1 });
    expect(sent).toEqual([
      [SELECT, 7, "a"],
      [
        "UPDATE <shop>.<stock> SET <left> = $1, <note> = $2, <version> = <version> + 1 WHERE <shop> = $3 AND <item> = $4 AND <version> = $5",
        ...[1, "n", 7, "a", "4"],
      ],
    ]);
    const other = connection(false, { rows: [{ v: 0 }] }, { changed: 1 });
    expect(await other.locks.optimistic(null, { ...ROW, version: "v" }, () => ({}))).toMatchObject({ row: { v: 1 } });
    expect(other.sent[1]?.[0]).toContain("SET <v> = <v> + 1 WHERE");
  });

  test("it is read again after a conflict, with growing pauses, and given up after ten attempts or as many as were said", async () => {
    for (const [attempts, most] of [
      [undefined, 10],
      [1, 1],
      [3, 3],
    ] as const) {
      const clock = new FakeClock();
      const at: number[] = [];
      const answers = Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? { rows: [{ version: n }] } : { changed: 0 }));
      const { sent, locks } = connection(false, ...answers);
      const options = { ...ROW, clock, chance: { fraction: () => 1, id: () => "" }, ...(attempts ? { attempts } : {}) };
      const answer = locks.optimistic(null, options, () => (at.push(clock.now()), {}));
      await clock.advance(1000);
      expect(await answer).toEqual({ kind: "conflict", attempts: most });
      expect(sent).toHaveLength(2 * most);
      const pauses = at.slice(1).map((one, n) => one - (at[n] ?? 0));
      expect(pauses).toEqual([2, 4, 8, 16, 32, 50, 50, 50, 50].slice(0, most - 1));
      expect(clock.pending).toBe(0);
    }
    const second = connection(
      false,
      { rows: [{ version: 1 }] },
      { changed: 0 },
      { rows: [{ version: 2 }] },
      { changed: 1 },
    );
    const chance = { fraction: () => 0, id: () => "" };
    const clock = new FakeClock();
    const answer = second.locks.optimistic(null, { ...ROW, clock, chance }, () => ({}));
    await clock.advance(0);
    expect(await answer).toEqual({ kind: "written", row: { version: 3 }, attempts: 2 });
  });

  test("a row that is missing, left as it is or without that column is told; more rows than one are no success", async () => {
    const missing = connection(false, {});
    expect(await missing.locks.optimistic(null, ROW, () => ({}))).toEqual({ kind: "missing" });
    const left = connection(false, { rows: [{ version: 1 }] });
    expect(await left.locks.optimistic(null, ROW, async () => null)).toEqual({ kind: "left", row: { version: 1 } });
    expect([missing.sent.length, left.sent.length]).toEqual([1, 1]);
    const bare = connection(false, { rows: [{ left: 1 }] });
    await expect(bare.locks.optimistic(null, ROW, () => ({}))).rejects.toThrow(/no column "version"/);
    for (const attempts of [0, 1001, 1.5]) {
      const wrong = bare.locks.optimistic(null, { ...ROW, attempts }, () => ({}));
      await expect(wrong).rejects.toBeInstanceOf(InvalidOptionError);
    }
    const most = connection(false, {});
    expect(await most.locks.optimistic(null, { ...ROW, attempts: 1000 }, () => ({}))).toEqual({ kind: "missing" });
    const two = connection(false, { rows: [{ version: 1 }] }, { changed: 2 });
    const answer = two.locks.optimistic(null, { ...ROW, attempts: 1 }, () => ({}));
    expect(await answer).toEqual({ kind: "conflict", attempts: 1 });
  });
});

describe("a row that is changed first and looked at then", () => {
  const ADD = { ...ROW, add: { left: -1, version: 1 } };
  const UPDATE: Sent = [
    "UPDATE <shop>.<stock> SET <left> = <left> + $1, <version> = <version> + $2 WHERE <shop> = $3 AND <item> = $4",
    ...[-1, 1, 7, "a"],
  ];
  const LOOK: Sent = [SELECT, 7, "a"];
  const changed: Answer[] = [{}, { changed: 1 }, { rows: [{ left: 0 }] }];

  test("yes commits, no rolls back, and a missing row ends the transaction, too", async () => {
    const yes = connection(false, ...changed, { command: "COMMIT" });
    expect(await yes.locks.addOrRollBack(null, ADD, ({ left }) => left === 0)).toEqual({
      kind: "written",
      row: { left: 0 },
    });
    expect(yes.sent).toEqual([["BEGIN"], UPDATE, LOOK, ["COMMIT"]]);
    const no = connection(false, ...changed, { command: "ROLLBACK" });
    expect(await no.locks.addOrRollBack(null, ADD, async () => false)).toEqual({ kind: "left", row: { left: 0 } });
    expect(no.sent).toEqual([["BEGIN"], UPDATE, LOOK, ["ROLLBACK"]]);
    const missing = connection(false, {}, { changed: 0 });
    const never = (): boolean => {
      throw new Error("there is nothing to look at");
    };
    expect(await missing.locks.addOrRollBack(null, ADD, never)).toEqual({ kind: "missing" });
    expect(missing.sent).toEqual([["BEGIN"], UPDATE, ["ROLLBACK"]]);
  });

  test("what fails is rolled back, and is what the caller hears", async () => {
    const cut = connection(false, {}, { changed: 1 }, new Error("cut"), new Error("and no rollback"));
    await expect(cut.locks.addOrRollBack(null, ADD, () => true)).rejects.toThrow("cut");
    expect(cut.sent.at(-1)).toEqual(["ROLLBACK"]);
    const several = connection(false, {}, { changed: 2 });
    await expect(several.locks.addOrRollBack(null, ADD, () => true)).rejects.toThrow(/names 2 rows/);
    expect(several.sent).toEqual([["BEGIN"], UPDATE, ["ROLLBACK"]]);
    const caught = connection(false, ...changed, { command: "ROLLBACK" });
    await expect(caught.locks.addOrRollBack(null, ADD, () => true)).rejects.toBeInstanceOf(MisuseError);
    const forgot = connection(false, ...changed);
    await expect(forgot.locks.addOrRollBack(null, ADD, (() => 1) as never)).rejects.toThrow(/true or false/);
    expect(forgot.sent.at(-1)).toEqual(["ROLLBACK"]);
    // It did not begin: there is nothing to end.
    const refused = connection(false, new Error("no BEGIN"));
    await expect(refused.locks.addOrRollBack(null, ADD, () => true)).rejects.toThrow("no BEGIN");
    expect(refused.sent).toEqual([["BEGIN"]]);
  });

  test("a pool, and what adds nothing, are refused before anything is sent", async () => {
    const { sent, locks } = connection(true);
    await expect(locks.addOrRollBack(null, ADD, () => true)).rejects.toBeInstanceOf(MisuseError);
    const single = connection(false);
    for (const add of [{}, { left: Number.NaN }, { left: Infinity }, { left: "1" }]) {
      const wrong = single.locks.addOrRollBack(null, { ...ADD, add } as never, () => true);
      await expect(wrong).rejects.toBeInstanceOf(InvalidOptionError);
    }
    expect([sent, single.sent]).toEqual([[], []]);
  });
});

describe("each database's way to write it", () => {
  test("PostgreSQL: numbered places, double quotes", async () => {
    const sent: unknown[] = [];
    const query = async (one: object) => {
      sent.push(one);
      return { rows: [{ version: 1 }], rowCount: null, command: "SELECT" };
    };
    await postgres.forUpdate({ query }, { table: 'a"b.c', key: { d: 1, e: "x" } });
    expect(sent).toEqual([
      { text: 'SELECT * FROM "a""b"."c" WHERE "d" = $1 AND "e" = $2 FOR UPDATE', values: [1, "x"] },
    ]);
    const answer = await postgres.optimistic({ query }, { table: "t", key: { id: 1 }, attempts: 1 }, () => ({}));
    expect(answer).toEqual({ kind: "conflict", attempts: 1 });
    const pool = { query, totalCount: 1 };
    await expect(
      postgres.addOrRollBack(pool, { table: "t", key: { id: 1 }, add: { n: 1 } }, () => true),
    ).rejects.toThrow(MisuseError);
  });

  test("MySQL: text as bytes of one character set, and nothing that becomes a condition of its own", async () => {
    const sent: unknown[][] = [];
    let result: unknown = [{ version: 1 }];
    const query = async (text: string, values: unknown[]): Promise<readonly [unknown, unknown]> => {
      sent.push([text, ...values]);
      return [result, []];
    };
    await mysql.forUpdate({ query }, { table: "a`b", key: { d: 1, e: "é" } });
    expect(sent).toEqual([["SELECT * FROM `a``b` WHERE `d` = ? AND `e` = _utf8mb4 ? FOR UPDATE", 1, Buffer.from("é")]]);
    for (const value of [new Date(0), Buffer.from("x"), null, true]) {
      await mysql.forUpdate({ query }, { table: "t", key: { d: value } });
      expect(sent.at(-1)).toEqual(["SELECT * FROM `t` WHERE `d` = ? FOR UPDATE", value]);
    }
    for (const value of [{ d: 1 }, [1], new Map()]) {
      await expect(mysql.forUpdate({ query }, { table: "t", key: { d: value } })).rejects.toBeInstanceOf(
        InvalidOptionError,
      );
    }
    const options = { table: "t", key: { id: 1 }, add: { n: 1 } };
    result = { affectedRows: 2 };
    await expect(mysql.addOrRollBack({ query }, options, () => true)).rejects.toThrow(/names 2 rows/);
    result = {};
    expect(await mysql.addOrRollBack({ query }, options, () => true)).toEqual({ kind: "missing" });
    const pool = { query, getConnection: () => {} };
    await expect(mysql.addOrRollBack(pool, options, () => true)).rejects.toThrow(MisuseError);
  });
});

test("rows of claims become a page of names: holders and waiters in their order, times where they are known", () => {
  const owner = { client: "c", host: "h", pid: 1 };
  const row = (name: string, id: string, over: object = {}) => ({
    ...{
      name: Buffer.from(name),
      id: Buffer.from(id),
      capacity: 3,
      last_token: "9",
      units: 1,
      left_ms: 50,
      token: 4,
      holds: 0,
    },
    ...{ owner: Buffer.from(JSON.stringify(owner)), data: null, for_ms: null, ...over },
  });
  const claim = (id: string) => ({ id, units: 1, leftMs: 50, owner });
  const rows = [
    row("a", "1", { holds: 1, for_ms: "7", data: Buffer.from('"d"') }),
    row("a", "2", { holds: 1 }),
    row("a", "3", { for_ms: 8 }),
    row("b", "4"),
    row("a", "5"),
  ];
  expect(pageOf([[{ next: Buffer.from("b") }], rows])).toEqual({
    states: [
      {
        ...{ name: "a", capacity: 3, lastToken: 9 },
        holders: [
          { ...claim("1"), data: "d", token: 4, heldMs: 7 },
          { ...claim("2"), token: 4 },
        ],
        waiters: [{ ...claim("3"), waitingMs: 8 }, claim("5")],
      },
      { name: "b", capacity: 3, lastToken: 9, holders: [], waiters: [claim("4")] },
    ],
    next: "b",
  });
  expect(pageOf([[{ next: null }], []])).toEqual({ states: [], next: null });
});
