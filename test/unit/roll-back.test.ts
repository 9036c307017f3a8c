import Database from "libsql";
import { beforeEach, expect, test } from "vitest";
import { InvalidOptionError, MisuseError } from "../../src/core/errors.js";
import { addOrRollBack, type SqliteDatabase } from "../../src/engines/sqlite/index.js";

type Item = { readonly id: number; readonly left: number };

let database: SqliteDatabase;
beforeEach(() => {
  database = new Database(":memory:");
  database.exec(
    "CREATE TABLE stock (id INTEGER PRIMARY KEY, `left` INTEGER NOT NULL); CREATE TABLE sale (buyer INTEGER)",
  );
  database.exec("INSERT INTO stock VALUES (1, 2), (2, 2)");
});

const TAKE = { table: "stock", key: { id: 1 }, add: { left: -1 } };
const counted = (sql: string): number => (database.prepare(sql).get() as { n: number }).n;
const left = (): number => counted("SELECT `left` AS n FROM stock WHERE id = 1");
const sales = (): number => counted("SELECT count(*) AS n FROM sale");

function buy(buyer: number) {
  return addOrRollBack<Item>(database, TAKE, (row) => {
    database.prepare("INSERT INTO sale VALUES (?)").run(buyer);
    return row.left >= 0;
  });
}

test("what there is is sold, and the sale that would be one too many leaves nothing behind", () => {
  expect([1, 2, 3].map((buyer) => buy(buyer).kind)).toEqual(["written", "written", "left"]);
  expect([left(), sales()]).toEqual([0, 2]);
});

test("an error of the callback rolls back and reaches the caller, and the database goes on", () => {
  expect(() =>
    addOrRollBack(database, TAKE, () => {
      throw new Error("no such buyer");
    }),
  ).toThrow("no such buyer");
  expect(left()).toBe(2);
  expect(buy(1).kind).toBe("written");
});

test("a missing row is a value; several rows, no column, a callback that waits and a name that is no column are refused", () => {
  expect(addOrRollBack(database, { ...TAKE, key: { id: 9 } }, () => true)).toEqual({ kind: "missing" });
  expect(() => addOrRollBack(database, { ...TAKE, key: { left: 2 } }, () => true)).toThrow(/names 2 rows/);
  expect(() => addOrRollBack(database, { ...TAKE, add: {} }, () => true)).toThrow(InvalidOptionError);
  const waits = (async () => true) as unknown as () => boolean;
  expect(() => addOrRollBack(database, TAKE, waits)).toThrow(MisuseError);
  // In double quotes it would be the text "idd", which no row has, and the answer "missing".
  expect(() => addOrRollBack(database, { ...TAKE, key: { idd: 1 } }, () => true)).toThrow(/no such column/);
  expect(left()).toBe(2);
});
