// What is written to: with a look at the token and without. In the store that has the locks, where that can keep a
// document; otherwise in a file. The two need not be in one place: the token is just a number.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fenceColumn, fencedSet, fencedWriteFile } from "holdfast/fence";

const NAME = "example:paused-writer:document";

const KINDS = {
  async file(_url, folder) {
    const path = join(folder, "document.txt");
    return {
      read: async () => readFileSync(path, "utf8"),
      write: async (text) => writeFileSync(path, text),
      writeFenced: (text, hold) => fencedWriteFile(path, text, hold),
      close: async () => {},
    };
  },

  async redis(url) {
    const { Redis } = await import("ioredis");
    const client = new Redis(url);
    return {
      read: () => client.get(NAME),
      write: (text) => client.set(NAME, text),
      writeFenced: (text, hold) => fencedSet(client, NAME, text, hold),
      close: () => client.quit(),
    };
  },

  async postgres(url) {
    const { default: pg } = await import("pg");
    const pool = new pg.Pool({ connectionString: url, max: 1 });
    await pool.query("SELECT pg_advisory_lock(4711)"); // two CREATE TABLE IF NOT EXISTS at once collide
    await pool.query(
      "CREATE TABLE IF NOT EXISTS paused_writer (id TEXT PRIMARY KEY, body TEXT, fence BIGINT NOT NULL DEFAULT 0)",
    );
    await pool.query("INSERT INTO paused_writer (id) VALUES ($1) ON CONFLICT DO NOTHING", [NAME]);
    await pool.query("SELECT pg_advisory_unlock(4711)");
    return {
      read: async () => (await pool.query("SELECT body FROM paused_writer WHERE id = $1", [NAME])).rows[0].body,
      write: (text) => pool.query("UPDATE paused_writer SET body = $1 WHERE id = $2", [text, NAME]),
      // The same statement, with two conditions more: no extra round trip.
      async writeFenced(text, hold) {
        const fence = fenceColumn("postgres", NAME, hold);
        const update = `UPDATE paused_writer SET body = $1, ${fence.set} WHERE id = $2 AND ${fence.where}`;
        fence.check((await pool.query(update, [text, NAME])).rowCount);
      },
      close: () => pool.end(),
    };
  },
};

export function openDocument(url, folder) {
  const [, scheme] = /^(redis|postgres)(?:ql)?:/.exec(url) ?? [];
  return KINDS[scheme ?? "file"](url, folder);
}
