// One service with a database of its own: how many it has, and which moves have come through here.
import { atOnce, openDatabase } from "../lib/sqlite.mjs";

export class Service {
  constructor(path, amount) {
    this.database = openDatabase(path);
    if (amount === undefined) return;
    this.database.exec(`
      PRAGMA journal_mode = WAL;
      CREATE TABLE amount (now INTEGER NOT NULL);
      CREATE TABLE move (id TEXT PRIMARY KEY, change INTEGER NOT NULL);
      INSERT INTO amount VALUES (${amount});
    `);
  }

  get amount() {
    return this.database.prepare("SELECT now FROM amount").get().now;
  }

  /** Every move so far: by id, by how much. */
  get moves() {
    const rows = this.database.prepare("SELECT id, change FROM move").all();
    return new Map(rows.map(({ id, change }) => [id, change]));
  }

  /** The new amount and the move that led to it, both or none. */
  write(id, change, amount) {
    atOnce(this.database, () => {
      this.database.prepare("UPDATE amount SET now = ?").run(amount);
      this.database.prepare("INSERT OR REPLACE INTO move VALUES (?, ?)").run(id, change);
    });
  }

  close() {
    this.database.close();
  }
}
