// The embedded shop: two tables in a file, and five ways to sell the last items. Each way gets a buyer and answers true when it sold.
import { setTimeout as sleep } from "node:timers/promises";
import { addOrRollBack } from "holdfast/sqlite";
import { atOnce, openDatabase } from "../lib/sqlite.mjs";
import { WORK_MS } from "./work.mjs";

/** @param {number[]} stocks one for each product, or for each segment of one */
export function createShop(path, stocks) {
  const database = openDatabase(path);
  database.exec(`
    PRAGMA journal_mode = WAL;
    CREATE TABLE product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL, version INTEGER NOT NULL);
    CREATE TABLE purchase_history (id INTEGER PRIMARY KEY, product INTEGER NOT NULL, buyer TEXT NOT NULL);
    INSERT INTO product VALUES ${stocks.map((stock, id) => `(${id}, ${stock}, 1)`).join(", ")};
  `);
  database.close();
}

export function countShop(path) {
  const database = openDatabase(path);
  const { sold } = database.prepare("SELECT count(*) AS sold FROM purchase_history").get();
  const { left } = database.prepare("SELECT sum(stock) AS left FROM product").get();
  database.close();
  return { sold, left };
}

export const openTill = (path) => new Till(path);

/** One connection to the shop. */
class Till {
  constructor(path) {
    this.database = openDatabase(path);
    const prepare = (sql) => this.database.prepare(sql);
    this.look = prepare("SELECT stock, version FROM product WHERE id = ?");
    this.filled = prepare("SELECT id FROM product WHERE stock > 0");
    this.setStock = prepare("UPDATE product SET stock = ?, version = version + 1 WHERE id = ?");
    this.setIfVersion = prepare("UPDATE product SET stock = ?, version = version + 1 WHERE id = ? AND version = ?");
    this.record = prepare("INSERT INTO purchase_history (product, buyer) VALUES (?, ?)");
  }

  /** The plain code of a shop that has never seen two buyers at once: read, work, write. */
  async readAndWrite(buyer, product = 0) {
    const { stock } = this.look.get(product);
    if (stock <= 0) return false;
    await sleep(WORK_MS);
    atOnce(this.database, () => {
      this.setStock.run(stock - 1, product);
      this.record.run(product, buyer);
    });
    return true;
  }

  /** Where there is something left. */
  async inStock() {
    return new Set(this.filled.all().map(({ id }) => id));
  }

  close() {
    this.database.close();
  }
}

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

  // Nobody waits; whoever wrote over an old version begins again.
  optimistic:
    ({ till }) =>
    async (buyer) => {
      for (;;) {
        const { stock, version } = till.look.get(0);
        if (stock <= 0) return false;
        await sleep(WORK_MS);
        const won = atOnce(till.database, () => {
          const { changes } = till.setIfVersion.run(stock - 1, 0, version);
          if (Number(changes) === 1) till.record.run(0, buyer);
          return Number(changes) === 1;
        });
        if (won) return true;
        await sleep(WORK_MS * Math.random());
      }
    },

  // The database's own lock, kept over the work: one connection per buyer, and nobody else writes anything meanwhile.
  pessimistic:
    ({ shop }) =>
    async (buyer) => {
      const till = openTill(shop);
      till.database.exec("PRAGMA busy_timeout = 0");
      try {
        await beginImmediate(till.database);
        const { stock } = till.look.get(0);
        if (stock > 0) {
          await sleep(WORK_MS);
          till.setStock.run(stock - 1, 0);
          till.record.run(0, buyer);
        }
        till.database.exec("COMMIT");
        return stock > 0;
      } finally {
        till.close();
      }
    },

  // One statement takes and looks; below zero it is taken back. The work comes first: there is nothing to protect then.
  "roll back":
    ({ till }) =>
    async (buyer) => {
      await sleep(WORK_MS);
      const take = { table: "product", key: { id: 0 }, add: { stock: -1, version: 1 } };
      const { kind } = addOrRollBack(till.database, take, ({ stock }) => {
        if (stock >= 0) till.record.run(0, buyer);
        return stock >= 0;
      });
      return kind === "written";
    },
};

/** Waits without blocking: whoever has the lock may be in this very process. */
async function beginImmediate(database) {
  for (;;) {
    try {
      return database.exec("BEGIN IMMEDIATE");
    } catch (error) {
      if (error.errcode !== 5 && !String(error.code).startsWith("SQLITE_BUSY")) throw error;
      await sleep(1 + WORK_MS * Math.random());
    }
  }
}
