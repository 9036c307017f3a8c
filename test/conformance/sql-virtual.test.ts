import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { Kit, type Setting } from "../../src/testing/conformance/kit.js";
import { compareCells } from "../virtual/cells.js";
import * as mysql from "../virtual/mysql.js";
import * as postgres from "../virtual/postgres.js";
import { compareTurns } from "../virtual/turns.js";
import { waitersCount } from "../virtual/waiters.js";
import {
  deadWaiterIsNotTheFirst,
  deadWaiterIsNotTold,
  deadWaiterIsPassedOver,
  deadWaiterLeaves,
} from "./dead-waiter.js";
import { overAtItsEnd } from "./lease-end.js";

/** Longer than a tombstone lasts. */
const TOMBSTONE_OVER_MS = 61_000;

/** Under an idle name and under a busy one alike. */
async function endedTombstoneIsNone({ setting }: { readonly setting: Setting }): Promise<void> {
  const kit = new Kit(setting);
  const engine = await kit.open();
  const name = kit.name();
  const [old, young, other] = [kit.claim(name), kit.claim(name), kit.claim(name)];
  await engine.claim(old);
  await engine.release(old);
  expect(await engine.claim(old)).toEqual({ kind: "gone" });
  await setting.clock?.advance(TOMBSTONE_OVER_MS);
  await engine.claim(young);
  await engine.release(young);
  expect((await engine.claim(other)).kind).toBe("granted");
  expect((await engine.claim(young)).kind).toBe("gone");
  expect((await engine.claim(old)).kind).toBe("queued");
  await kit.close();
}

describe("postgres, in virtual time", () => {
  let store: postgres.VirtualPostgres;
  beforeAll(async () => {
    store = await postgres.virtual();
  });
  afterAll(() => store.close());

  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 15 }));

  test("the fast ways answer, push and store what the plain ones do", async () => {
    await compareWithReference({ ...store.setting, engine: store.ways(), runs: 3 });
    postgres.PLAIN.check();
  });

  test("queues are as the reference's, also after several claims or releases of one tick", () =>
    compareTurns(store.setting, { seed: Date.now() % 1_000_000, runs: 30, commands: 30 }));

  test("cells keep their rules while time passes", async () => {
    const { engine } = store.setting;
    const seed = Date.now() % 1_000_000;
    expect(await compareCells({ engine, clock: store.clock, seed, runs: 4, commands: 60 })).toBe(240);
  });

  test("waiters count: dead ones are gone, and a capacity is theirs too", () => waitersCount(store.setting));

  test("a tombstone that has ended is none", () => endedTombstoneIsNone(store));

  test("a dead waiter is not told that a lowered capacity dropped it", () => deadWaiterIsNotTold(store.setting));

  test("a dead waiter leaves when somebody asks about it", () => deadWaiterLeaves(store.setting));

  test("a release lets in the first waiter that lives", () => deadWaiterIsPassedOver(store.setting));

  test("whoever waits behind a dead one is the first, after a hand-over too", () =>
    deadWaiterIsNotTheFirst(store.setting));

  test("a lease is over at its very end, for whatever is asked then", () => overAtItsEnd(store.setting));

  test("a look at the server's own clock is refused", async () => {
    const { pool } = store.table("other", (sql) => sql);
    for (const text of ["SELECT LOCALTIMESTAMP", "SELECT transaction_timestamp()", "SELECT 'now'::timestamptz"]) {
      await expect(async () => pool.query(text)).rejects.toThrow("reads the server's own clock");
    }
  });
});

describe("mysql, in virtual time", () => {
  let store: mysql.VirtualMysql;
  beforeAll(async () => {
    store = await mysql.virtual();
  });
  afterAll(() => store.close());

  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 15 }));

  test("the fast ways answer, push and store what the plain ones do", async () => {
    await compareWithReference({ ...store.setting, engine: store.ways(), runs: 3 });
    mysql.PLAIN.check();
  });

  test("queues are as the reference's, also after several claims or releases of one tick", () =>
    compareTurns(store.setting, { seed: Date.now() % 1_000_000, runs: 30, commands: 30 }));

  test("cells keep their rules while time passes", async () => {
    const { engine } = store.setting;
    const seed = Date.now() % 1_000_000;
    expect(await compareCells({ engine, clock: store.clock, seed, runs: 4, commands: 60 })).toBe(240);
  });

  test("waiters count: dead ones are gone, and a capacity is theirs too", () => waitersCount(store.setting));

  test("a tombstone that has ended is none", () => endedTombstoneIsNone(store));

  test("a dead waiter is not told that a lowered capacity dropped it", () => deadWaiterIsNotTold(store.setting));

  test("a dead waiter leaves when somebody asks about it", () => deadWaiterLeaves(store.setting));

  test("a release lets in the first waiter that lives", () => deadWaiterIsPassedOver(store.setting));

  test("whoever waits behind a dead one is the first, after a hand-over too", () =>
    deadWaiterIsNotTheFirst(store.setting));

  test("a lease is over at its very end, for whatever is asked then", () => overAtItsEnd(store.setting));

  test("a look at the server's own clock is refused", async () => {
    const { pool } = store.table("other", (sql) => sql);
    for (const sql of [
      "SELECT SYSDATE()",
      "SELECT UTC_TIMESTAMP(3)",
      "SELECT CURRENT_TIMESTAMP",
      "SELECT @@timestamp",
    ]) {
      await expect(pool.promise().query(sql)).rejects.toThrow("reads the server's own clock");
    }
  });
});
