import { createConnection, type ResultSetHeader, type RowDataPacket } from "mysql2/promise";
import { expect, onTestFinished, test } from "vitest";
import { fenceColumn, fenceTable, mysqlFence, StaleTokenError } from "../../src/fence/index.js";
import { startMariadb } from "../servers/mariadb.js";

test("the server counts: a fence in a column costs no further statement, one in a table costs one", async () => {
  const server = await startMariadb();
  onTestFinished(() => server.running.stop());
  const db = await createConnection(server.url);
  onTestFinished(() => db.destroy());
  for (const sql of ["CREATE DATABASE fence", "USE fence", fenceTable("mysql")]) await db.query(sql);
  await db.query("CREATE TABLE item (id int PRIMARY KEY, value int, fence bigint NOT NULL DEFAULT 0)");
  await db.query("INSERT INTO item (id) VALUES (1)");

  const asked = async (): Promise<number> => {
    const [rows] = await db.query<RowDataPacket[]>("SHOW SESSION STATUS LIKE 'Questions'");
    return Number(rows[0]?.Value);
  };
  /** Statements that the server was asked, without the question for their number. */
  const statementsOf = async (run: () => Promise<void>): Promise<number> => {
    const before = await asked();
    await run();
    return (await asked()) - before - 1;
  };
  const plain = async (): Promise<void> => void (await db.query("UPDATE item SET value = ? WHERE id = ?", [1, 1]));
  const column = async (token: number): Promise<void> => {
    const { set, where, check } = fenceColumn("mysql", "item 1", token);
    const sql = `UPDATE item SET value = ?, ${set} WHERE id = ? AND ${where}`;
    const [{ affectedRows }] = await db.query<ResultSetHeader>(sql, [2, 1]);
    check(affectedRows);
  };
  const table = async (token: number): Promise<void> => {
    await mysqlFence(db).accept("item 1", token);
    await plain();
  };
  const refused = async (run: Promise<void>): Promise<void> => expect(run).rejects.toThrow(StaleTokenError);

  expect(await statementsOf(plain)).toBe(1);
  expect(await statementsOf(() => column(5))).toBe(1);
  expect(await statementsOf(() => column(5))).toBe(1);
  expect(await statementsOf(() => refused(column(4)))).toBe(1);
  expect(await statementsOf(() => table(5))).toBe(2);
  expect(await statementsOf(() => refused(table(4)))).toBe(1);
});
