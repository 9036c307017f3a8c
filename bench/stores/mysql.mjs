import { randomUUID } from "node:crypto";
import { openMariadb, startMariadb } from "../lib/databases.mjs";
import { connectionEach, holdfast, POLL_MS, pause } from "./holdfast.mjs";

/** Inserts and deletes of one key run into deadlocks: whoever is chosen to give way has not got it, and looks again. */
function unlessDeadlock(error) {
  if (error.code !== "ER_LOCK_DEADLOCK") throw error;
  return [{ affectedRows: 0 }];
}

const bareTable = {
  async open({ url }) {
    const client = await openMariadb(url);
    return {
      async take(name) {
        const owner = randomUUID();
        const insert = () =>
          client.query("INSERT IGNORE INTO bare.bare VALUES (?, ?)", [name, owner]).catch(unlessDeadlock);
        while ((await insert())[0].affectedRows === 0) await pause(POLL_MS);
        const remove = () =>
          client.query("DELETE FROM bare.bare WHERE name = ? AND owner = ?", [name, owner]).catch(unlessDeadlock);
        return async () => {
          while ((await remove())[0].affectedRows === 0);
        };
      },
      close: () => client.end(),
    };
  },
  not: { crash: "never: the row has no end" },
};

const getLock = {
  open: async ({ url }) =>
    connectionEach(
      () => openMariadb(url),
      (client, name) => client.query("SELECT GET_LOCK(?, 600)", [name]),
      (client, name) => client.query("SELECT RELEASE_LOCK(?)", [name]),
      (client) => client.end(),
    ),
  waiters: 64,
};

export const mysql = {
  async start({ counting = false, onDisk = false } = {}) {
    const server = await startMariadb({ onDisk });
    const client = await server.open();
    await client.query("CREATE DATABASE bare");
    await client.query("CREATE TABLE bare.bare (name VARBINARY(512) PRIMARY KEY, owner VARBINARY(64)) ENGINE = InnoDB");
    let own = 0;
    const requests = async () => {
      own += 1;
      const [[{ Value }]] = await client.query("SHOW GLOBAL STATUS LIKE 'Questions'");
      return Number(Value) - own;
    };
    return {
      at: { url: server.url },
      roundTrip: { name: "SELECT 1", run: () => client.query("SELECT 1") },
      requests: counting ? requests : undefined,
      async stop() {
        await client.end();
        await server.stop();
      },
    };
  },
  contestants: { holdfast, "bare table": bareTable, GET_LOCK: getLock },
};
