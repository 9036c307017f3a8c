// Holdfast in the shape that all contestants have, on whatever store the URL names.
import { connect } from "../../dist/index.js";

export const LEASE_MS = 10_000;
/** How often those look again that are not woken by anybody. */
export const POLL_MS = 50;
export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Of this tree's library or another's, with options of the mutex. */
export function contestantOf(connectTo, options) {
  return {
    async open({ url }) {
      const locks = await connectTo(url);
      return {
        async take(name) {
          const hold = await locks.mutex(name, options).acquire();
          return () => hold.release();
        },
        close: () => locks.close(),
      };
    },
  };
}

export const holdfast = contestantOf(connect);

/** The same with bursts: the tasks of a process take turns under one claim. Measured where a lock is hot, and nowhere else. */
export const holdfastBursts = contestantOf(connect, { burst: { holds: 16, ms: 20 } });

/**
 * The locks that a database has itself end with their connection and are its connection's: whoever holds or waits needs
 * one of its own.
 */
export function connectionEach(open, lock, unlock, end) {
  const all = [];
  const idle = [];
  const opened = async () => {
    const client = await open();
    all.push(client);
    return client;
  };
  return {
    async take(name) {
      const client = idle.pop() ?? (await opened());
      await lock(client, name);
      return async () => {
        await unlock(client, name);
        idle.push(client);
      };
    },
    close: () => Promise.all(all.map(end)),
  };
}
