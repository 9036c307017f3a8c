import type { PgClient, PgPool } from "../client.js";

/** What is known about the connections of a pool, by all engines on it together. */
export type Watch = {
  /** How often a call on this pool has gone unanswered. */
  silences: number;
  /** For each connection the number of silences when it was made or answered for the last time. */
  readonly heard: WeakMap<PgClient, number>;
};

const watches = new WeakMap<PgPool, Watch>();
const guarded = new WeakSet<PgClient>();

/**
 * A client of `pg` without a listener for errors ends the whole program when its connection ends. A pool takes its own
 * listener away when it lends a client out, and whoever awaits the client can listen only a microtask later: the end of a connection
 * that comes in the same packet as the last answer falls in between. So each client gets a listener that does nothing, for
 * good, as soon as it is seen. It hides nothing: a pool's own listener, and those of the program, are called as before, and
 * whoever waits for an answer is told by its rejection.
 */
export function guard(client: PgClient): void {
  if (guarded.has(client)) return;
  guarded.add(client);
  client.on("error", () => {});
}

/** Guards all clients of a pool, those that it will make too. Once for each pool, however many engines use it. */
export function watchPool(pool: PgPool): Watch {
  const known = watches.get(pool);
  if (known !== undefined) return known;
  const watch: Watch = { silences: 0, heard: new WeakMap() };
  watches.set(pool, watch);
  // A pool tells of both before it takes its own listener away.
  pool.on?.("connect", (client) => {
    guard(client);
    watch.heard.set(client, watch.silences);
  });
  pool.on?.("acquire", guard);
  return watch;
}
