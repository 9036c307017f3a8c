// What the shop has and has sold: two tables in a file, written in one transaction.
import { atOnce, openDatabase } from "../lib/sqlite.mjs";

export class Stock {
  constructor(path, items) {
    this.database = openDatabase(path);
    if (items === undefined) return;
    this.database.exec(`
      PRAGMA journal_mode = WAL;
      CREATE TABLE product (left INTEGER NOT NULL);
      CREATE TABLE purchase_history (id INTEGER PRIMARY KEY);
      INSERT INTO product VALUES (${items});
    `);
  }

  get left() {
    return this.database.prepare("SELECT left FROM product").get().left;
  }

  get sold() {
    return this.database.prepare("SELECT count(*) AS sold FROM purchase_history").get().sold;
  }

  sell(left) {
    atOnce(this.database, () => {
      this.database.prepare("UPDATE product SET left = ?").run(left);
      this.database.prepare("INSERT INTO purchase_history DEFAULT VALUES").run();
    });
  }

  close() {
    this.database.close();
  }
}
