import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compareWithReference } from "../../src/testing/compare.js";
import { type VirtualMysql, virtual as virtualMysql } from "../virtual/mysql.js";
import { type VirtualPostgres, virtual as virtualPostgres } from "../virtual/postgres.js";

describe("postgres, in virtual time", () => {
  let store: VirtualPostgres;
  beforeAll(async () => {
    store = await virtualPostgres();
  });
  afterAll(() => store.close());
  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 30, maxCommands: 100 }));
});

describe("mysql, in virtual time", () => {
  let store: VirtualMysql;
  beforeAll(async () => {
    store = await virtualMysql();
  });
  afterAll(() => store.close());
  test("random operations are answered as by the reference while time passes", () =>
    compareWithReference({ ...store.setting, runs: 30, maxCommands: 100 }));
});
