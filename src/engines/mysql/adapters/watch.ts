import type { MysqlConnection, MysqlPool } from "../client.js";

/** What is known about the connections of a pool, by all engines on it together. */
export type Watch = {
  /** How often a call on this pool has gone unanswered. */
  silences: number;
  /** For each connection the number of silences when it was made or answered for the last time. */
  readonly heard: WeakMap<MysqlConnection, number>;
  /** How many engines listen, with two connections each. */
  listening: number;
};

const watches = new WeakMap<MysqlPool, Watch>();
const guarded = new WeakSet<MysqlConnection>();

/**
 * An error event of a connection without a listener ends the whole program. A pool of mysql2 listens once: after the first
 * error nobody does, and a second one may follow (a write that fails while the connection ends). So each connection gets a
 * listener that does nothing, for good, as soon as it is seen. It hides nothing: the listeners of the pool and of the program
 * are called as before, and whoever waits for an answer is told by its rejection.
 */
export function guard(connection: MysqlConnection): void {
  if (guarded.has(connection)) return;
  guarded.add(connection);
  connection.on?.("error", () => {});
}

/** Guards all connections of a pool, those that it will make too. Once for each pool, however many engines use it. */
export function watchPool(pool: MysqlPool): Watch {
  const known = watches.get(pool);
  if (known !== undefined) return known;
  const watch: Watch = { silences: 0, heard: new WeakMap(), listening: 0 };
  watches.set(pool, watch);
  pool.on?.("connection", (connection) => {
    guard(connection);
    watch.heard.set(connection, watch.silences);
  });
  return watch;
}
