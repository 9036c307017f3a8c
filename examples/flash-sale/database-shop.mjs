// The same shop in a PostgreSQL, MySQL or MariaDB database, and the same five ways to sell, with the database's own means.
import { setTimeout as sleep } from "node:timers/promises";
import { WORK_MS } from "./work.mjs";

const KEY = { table: "flash_sale.product", key: { id: 0 } };
/** For each of the four servers; PostgreSQL allows 100 connections unless told otherwise. */
const CONNECTIONS = 12;

/** The few calls that the two client libraries do not share. */
const DRIVERS = {
  async postgres(url, connections) {
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({ connectionString: url, max: connections });
    return {
      ...(await import("holdfast/postgres")),
      connect: () => pool.connect(),
      async query(connection, text, values) {
        let place = 0;
        const numbered = text.replaceAll("?", () => `$${(place += 1)}`);
        return (await connection.query(numbered, values)).rows;
      },
      end: () => pool.end(),
    };
  },

  async mysql(url, connections) {
    const { createPool } = await import("mysql2/promise");
    const pool = createPool({ uri: url, connectionLimit: connections });
    return {
      ...(await import("holdfast/mysql")),
      connect: () => pool.getConnection(),
      query: async (connection, text, values) => (await connection.query(text, values))[0],
      end: () => pool.end(),
    };
  },
};

/** With all of its connections open: what connecting takes is not what a sale takes. */
export async function openTill(url, connections = CONNECTIONS) {
  const driver = await DRIVERS[url.startsWith("postgres") ? "postgres" : "mysql"](url, connections);
  const opened = await Promise.all(Array.from({ length: connections }, () => driver.connect()));
  for (const connection of opened) connection.release();
  return new Till(driver);
}

/** @param {number[]} stocks one for each product, or for each segment of one */
export async function createShop(url, stocks) {
  const till = await openTill(url, 1);
  for (const text of [
    "CREATE SCHEMA IF NOT EXISTS flash_sale",
    "DROP TABLE IF EXISTS flash_sale.product",
    "DROP TABLE IF EXISTS flash_sale.purchase_history",
    "CREATE TABLE flash_sale.product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL, version INTEGER NOT NULL)",
    "CREATE TABLE flash_sale.purchase_history (buyer VARCHAR(40) PRIMARY KEY, product INTEGER NOT NULL)",
    `INSERT INTO flash_sale.product VALUES ${stocks.map((stock, id) => `(${id}, ${stock}, 1)`).join(", ")}`,
  ])
    await till.once(text);
  await till.close();
}

export async function countShop(url) {
  const till = await openTill(url, 1);
  const [{ sold }] = await till.once("SELECT count(*) AS sold FROM flash_sale.purchase_history");
  const [{ stock }] = await till.once("SELECT sum(stock) AS stock FROM flash_sale.product");
  await till.once("DROP TABLE flash_sale.product");
  await till.once("DROP TABLE flash_sale.purchase_history");
  await till.close();
  return { sold: Number(sold), left: Number(stock) };
}

/** What a server process sells with: a pool of connections. */
class Till {
  constructor(driver) {
    this.driver = driver;
  }

  /** One statement by itself. */
  once(text, values = []) {
    return this.with((connection) => this.driver.query(connection, text, values));
  }

  async with(work) {
    const connection = await this.driver.connect();
    try {
      return await work(connection);
    } finally {
      connection.release();
    }
  }

  /** All of it when `work` answers true, nothing when it answers false or fails. */
  transaction(work) {
    return this.with(async (connection) => {
      const query = (text, values = []) => this.driver.query(connection, text, values);
      await query("BEGIN");
      try {
        const done = await work({ connection, query });
        await query(done ? "COMMIT" : "ROLLBACK");
        return done;
      } catch (error) {
        await query("ROLLBACK");
        throw error;
      }
    });
  }

  /** The plain code of a shop that has never seen two buyers at once: read, work, write. */
  async readAndWrite(buyer, product = 0) {
    const [{ stock }] = await this.once("SELECT stock FROM flash_sale.product WHERE id = ?", [product]);
    if (stock <= 0) return false;
    await sleep(WORK_MS);
    return this.transaction(async ({ query }) => {
      await query("UPDATE flash_sale.product SET stock = ?, version = version + 1 WHERE id = ?", [stock - 1, product]);
      await record(query, buyer);
      return true;
    });
  }

  /** Where there is something left. */
  async inStock() {
    return new Set((await this.once("SELECT id FROM flash_sale.product WHERE stock > 0")).map(({ id }) => id));
  }

  close() {
    return this.driver.end();
  }
}

const record = (query, buyer) => query("INSERT INTO flash_sale.purchase_history VALUES (?, 0)", [buyer]);

/** By name: `(tools) => (buyer) => Promise<boolean>`. */
export const VARIANTS = {
  "no lock":
    ({ till }) =>
    (buyer) =>
      till.readAndWrite(buyer),

  // The same code, with the lock around it.
  mutex: ({ till, locks }) => {
    const product = locks.mutex("example:product");
    return (buyer) => product.using(() => till.readAndWrite(buyer));
  },

  // Nobody waits; whoever would write over a version that he has not seen begins again.
  optimistic:
    ({ till }) =>
    async (buyer) => {
      for (;;) {
        let outcome;
        await till.transaction(async ({ connection, query }) => {
          outcome = await till.driver.optimistic(connection, { ...KEY, attempts: 1 }, async ({ stock }) => {
            if (stock <= 0) return null;
            await sleep(WORK_MS);
            return { stock: stock - 1 };
          });
          if (outcome.kind === "written") await record(query, buyer);
          return outcome.kind === "written";
        });
        if (outcome.kind !== "conflict") return outcome.kind === "written";
        await sleep(WORK_MS * Math.random());
      }
    },

  // The row's own lock, kept over the work: one connection for each buyer who waits.
  pessimistic:
    ({ till }) =>
    (buyer) =>
      till.transaction(async ({ connection, query }) => {
        const { stock } = await till.driver.forUpdate(connection, KEY);
        if (stock <= 0) return false;
        await sleep(WORK_MS);
        await query("UPDATE flash_sale.product SET stock = ?, version = version + 1", [stock - 1]);
        await record(query, buyer);
        return true;
      }),

  // One statement takes, and below zero it is taken back. The work comes first: there is nothing to protect then.
  "roll back":
    ({ till }) =>
    async (buyer) => {
      await sleep(WORK_MS);
      return till.with(async (connection) => {
        const query = (text, values) => till.driver.query(connection, text, values);
        const take = { ...KEY, add: { stock: -1, version: 1 } };
        const { kind } = await till.driver.addOrRollBack(connection, take, async ({ stock }) => {
          if (stock < 0) return false;
          await record(query, buyer);
          return true;
        });
        return kind === "written";
      });
    },
};
