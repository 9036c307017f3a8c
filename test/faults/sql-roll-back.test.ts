import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { InvalidOptionError, MisuseError } from "../../src/core/errors.js";
import { addOrRollBack as onMysql } from "../../src/engines/mysql/index.js";
import { addOrRollBack as onPostgres } from "../../src/engines/postgres/index.js";
import type { AddAnswer, AddOptions } from "../../src/sql/roll-back.js";
import * as maria from "../servers/mariadb.js";
import * as postgres from "../servers/postgres.js";

/** Change first, then look, and roll back: the third way to change a row that several want. */

type Item = { readonly id: number; readonly left_over: number };

/** One connection of a server, whatever its library calls its methods. */
type Connection = {
  run(sql: string): Promise<unknown>;
  add(options: AddOptions, accept: (row: Item) => boolean | Promise<boolean>): Promise<AddAnswer<Item>>;
  release(): void;
};
type Database = {
  connect(): Promise<Connection>;
  /** The helper with the whole pool, which it must refuse. */
  onPool(): Promise<unknown>;
  rows(sql: string): Promise<Record<string, unknown>[]>;
  stop(): Promise<void>;
};

const STOCK = { table: "stock", key: { id: 1 } };
const SETUP = [
  "CREATE TABLE stock (id INT PRIMARY KEY, left_over INT NOT NULL, version INT NOT NULL DEFAULT 0)",
  "CREATE TABLE sale (buyer INT PRIMARY KEY)",
  "INSERT INTO stock (id, left_over) VALUES (1, 100), (2, 5), (3, 5)",
];

const DATABASES: Record<string, () => Promise<Database>> = {
  async PostgreSQL() {
    const { url, running } = await postgres.startPostgres();
    const pool = postgres.poolOf(url, { max: 20 });
    return {
      async connect() {
        const client = await pool.connect();
        return {
          run: (sql) => client.query(sql),
          add: (options, accept) => onPostgres<Item>(client, options, accept),
          release: () => client.release(),
        };
      },
      onPool: () => onPostgres(pool, { ...STOCK, add: { left_over: -1 } }, () => true),
      rows: (sql) => postgres.query(url, sql),
      async stop() {
        await pool.end();
        await running.stop();
      },
    };
  },
  async MariaDB() {
    const { url, running } = await maria.startMariadb();
    await maria.query(url, "CREATE DATABASE shop");
    const pool = maria.poolOf(`${url}/shop`, { connectionLimit: 20 });
    return {
      async connect() {
        const connection = await pool.getConnection();
        return {
          run: (sql) => connection.query(sql),
          add: (options, accept) => onMysql<Item>(connection, options, accept),
          release: () => connection.release(),
        };
      },
      onPool: () => onMysql(pool, { ...STOCK, add: { left_over: -1 } }, () => true),
      rows: (sql) => maria.query(`${url}/shop`, sql),
      async stop() {
        await pool.end();
        await running.stop();
      },
    };
  },
};

describe.each(Object.keys(DATABASES))("%s", (name) => {
  let database: Database;
  beforeAll(async () => {
    database = await (DATABASES[name] as () => Promise<Database>)();
    for (const sql of SETUP) await database.rows(sql);
  }, 120_000);
  afterAll(() => database.stop());

  async function onConnection<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await database.connect();
    try {
      return await work(connection);
    } finally {
      connection.release();
    }
  }
  const leftOver = async (id: number) =>
    Number((await database.rows(`SELECT left_over FROM stock WHERE id = ${id}`))[0]?.left_over);
  const take = { ...STOCK, key: { id: 2 }, add: { left_over: -1 } };

  test("no sale is lost and none is made twice, and what the callback wrote stands or falls with it", async () => {
    const buy = (buyer: number) =>
      onConnection((connection) =>
        connection.add({ ...STOCK, add: { left_over: -1, version: 1 } }, async (row) => {
          await connection.run(`INSERT INTO sale VALUES (${buyer})`);
          return row.left_over >= 0;
        }),
      );
    const answers = await Promise.all(Array.from({ length: 120 }, (_, buyer) => buy(buyer)));
    expect(answers.filter(({ kind }) => kind === "written")).toHaveLength(100);
    expect(answers.filter(({ kind }) => kind === "left")).toHaveLength(20);
    expect(await database.rows("SELECT left_over, version FROM stock WHERE id = 1")).toMatchObject([
      { left_over: 0, version: 100 },
    ]);
    expect(await database.rows("SELECT buyer FROM sale")).toHaveLength(100);
  });

  test("the callback's error rolls back, is what the caller hears, and leaves the connection usable", async () => {
    await onConnection(async (connection) => {
      const failed = connection.add(take, async () => {
        throw new Error("no such buyer");
      });
      await expect(failed).rejects.toThrow("no such buyer");
      expect(await leftOver(2)).toBe(5);
      expect(await connection.add(take, ({ left_over }) => left_over === 4)).toEqual({
        kind: "written",
        row: expect.objectContaining({ id: 2, left_over: 4 }),
      });
    });
    expect(await leftOver(2)).toBe(4);
  });

  test("a statement that fails inside a callback which catches it is not called written", async () => {
    await onConnection(async (connection) => {
      const hidden = await connection
        .add({ ...take, key: { id: 3 } }, async () => {
          await connection.run("INSERT INTO no_such_table VALUES (1)").catch(() => {});
          return true;
        })
        .catch((error: unknown) => error);
      // PostgreSQL gives up the transaction; MariaDB gives up the statement alone.
      if (name === "PostgreSQL") expect(hidden).toBeInstanceOf(MisuseError);
      else expect(hidden).toMatchObject({ kind: "written" });
      expect(await leftOver(3)).toBe(name === "PostgreSQL" ? 5 : 4);
    });
  });

  test("a missing row is a value; a key of several rows, a pool and what is no number are refused and change nothing", async () => {
    await onConnection(async (connection) => {
      expect(await connection.add({ ...take, key: { id: 99 } }, () => true)).toEqual({ kind: "missing" });
      const forgets = (() => {}) as unknown as () => boolean;
      await expect(connection.add({ ...take, key: { id: 3 } }, forgets)).rejects.toThrow(/true or false/);
      const all = { table: "stock", key: { version: 0 }, add: { left_over: -1 } };
      await expect(connection.add(all, () => true)).rejects.toThrow(/names 2 rows/);
      await expect(connection.add({ ...take, add: {} }, () => true)).rejects.toThrow(InvalidOptionError);
      await expect(connection.add({ ...take, add: { left_over: Number.NaN } }, () => true)).rejects.toThrow(
        /add.left_over/,
      );
      expect(await connection.add({ ...take, add: { left_over: 0 } }, () => true)).toMatchObject({ kind: "written" });
    });
    await expect(database.onPool()).rejects.toThrow(MisuseError);
  });
});
