// The embedded shop: two tables in a file, and five ways to sell the last items. Each way gets a buyer and answers true when it sold.
import { createRequire } from "node:module";
import { sleep, WORK_MS } from "./work.mjs";

const PRODUCT = 1;

/** `node:sqlite` where this Node has it, else libsql; the two calls that are used here are the same. */
function openDatabase(path) {
  const warn = process.emitWarning.bind(process);
  process.emitWarning = () => {}; // "SQLite is an experimental feature"
  const builtin = process.getBuiltinModule("node:sqlite");
  process.emitWarning = warn;
  return builtin ? new builtin.DatabaseSync(path) : new (createRequire(import.meta.url)("libsql"))(path);
}

export function createShop(path, items) {
  const database = openDatabase(path);
  database.exec(`
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE product (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL, version INTEGER NOT NULL);
    CREATE TABLE purchase_history (id INTEGER PRIMARY KEY, product INTEGER NOT NULL, buyer TEXT NOT NULL);
    INSERT INTO product VALUES (${PRODUCT}, ${items}, 1);
  `);
  database.close();
}

export function countShop(path) {
  const database = openDatabase(path);
  const { sold } = database.prepare("SELECT count(*) AS sold FROM purchase_history").get();
  const { left } = database.prepare(`SELECT stock AS left FROM product WHERE id = ${PRODUCT}`).get();
  database.close();
  return { sold, left };
}

export const openTill = (path) => new Till(path);

/** One connection to the shop. */
class Till {
  constructor(path) {
    this.database = openDatabase(path);
    // First of all, and alone: what comes after it may find the file busy.
    this.database.exec("PRAGMA busy_timeout = 5000");
    this.database.exec("PRAGMA synchronous = NORMAL");
    const prepare = (sql) => this.database.prepare(sql);
    this.look = prepare(`SELECT stock, version FROM product WHERE id = ${PRODUCT}`);
    this.setStock = prepare(`UPDATE product SET stock = ?, version = version + 1 WHERE id = ${PRODUCT}`);
    this.setIfVersion = prepare(
      `UPDATE product SET stock = ?, version = version + 1 WHERE id = ${PRODUCT} AND version = ?`,
    );
    this.decrement = prepare(`UPDATE product SET stock = stock - 1, version = version + 1 WHERE id = ${PRODUCT}`);
    this.record = prepare(`INSERT INTO purchase_history (product, buyer) VALUES (${PRODUCT}, ?)`);
  }

  /** The plain code of a shop that has never seen two buyers at once: read, work, write. */
  async readAndWrite(buyer) {
    const { stock } = this.look.get();
    if (stock <= 0) return false;
    await sleep(WORK_MS);
    this.atOnce(() => {
      this.setStock.run(stock - 1);
      this.record.run(buyer);
    });
    return true;
  }

  /** Both statements or none; nothing waits in between. */
  atOnce(write) {
    this.database.exec("BEGIN IMMEDIATE");
    try {
      const result = write();
      this.database.exec("COMMIT");
      return result;
    } catch (error) {
      this.database.exec("ROLLBACK");
      throw error;
    }
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
    const product = locks.mutex(`product:${PRODUCT}`);
    return (buyer) => product.using(() => till.readAndWrite(buyer));
  },

  // Nobody waits; whoever wrote over an old version begins again.
  optimistic:
    ({ till }) =>
    async (buyer) => {
      for (;;) {
        const { stock, version } = till.look.get();
        if (stock <= 0) return false;
        await sleep(WORK_MS);
        const won = till.atOnce(() => {
          const { changes } = till.setIfVersion.run(stock - 1, version);
          if (Number(changes) === 1) till.record.run(buyer);
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
        const { stock } = till.look.get();
        if (stock > 0) {
          await sleep(WORK_MS);
          till.setStock.run(stock - 1);
          till.record.run(buyer);
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
      till.database.exec("BEGIN IMMEDIATE");
      till.decrement.run();
      const enough = till.look.get().stock >= 0;
      if (enough) till.record.run(buyer);
      till.database.exec(enough ? "COMMIT" : "ROLLBACK");
      return enough;
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
