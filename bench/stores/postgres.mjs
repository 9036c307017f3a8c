import { randomUUID } from "node:crypto";
import { Pool } from "pg";
import { openPostgres, startPostgres } from "../lib/databases.mjs";
import { connectionEach, holdfast, POLL_MS, pause } from "./holdfast.mjs";

const bareTable = {
  async open({ url }) {
    const client = new Pool({ connectionString: url });
    return {
      async take(name) {
        const owner = randomUUID();
        const insert = () => client.query("INSERT INTO bare VALUES ($1, $2) ON CONFLICT DO NOTHING", [name, owner]);
        while ((await insert()).rowCount === 0) await pause(POLL_MS);
        return () => client.query("DELETE FROM bare WHERE name = $1 AND owner = $2", [name, owner]);
      },
      close: () => client.end(),
    };
  },
  not: { crash: "never: the row has no end" },
};

const advisory = {
  open: async ({ url }) =>
    connectionEach(
      () => openPostgres(url),
      (client, name) => client.query("SELECT pg_advisory_lock(hashtextextended($1, 0))", [name]),
      (client, name) => client.query("SELECT pg_advisory_unlock(hashtextextended($1, 0))", [name]),
      (client) => client.end(),
    ),
  waiters: 64,
};

/** A statement is counted when it ends: those under way come on top. */
const COUNTED = `SELECT (SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%')::int
  + (SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND datname IS NOT NULL AND pid <> pg_backend_pid())::int AS count`;

export const postgres = {
  async start({ counting = false, onDisk = false } = {}) {
    const more = counting ? ["-c", "shared_preload_libraries=pg_stat_statements"] : [];
    const server = await startPostgres({ onDisk, more });
    const client = await server.open();
    await client.query("CREATE TABLE bare (name text PRIMARY KEY, owner text NOT NULL)");
    if (counting) await client.query("CREATE EXTENSION pg_stat_statements");
    return {
      at: { url: server.url },
      roundTrip: { name: "SELECT 1", run: () => client.query("SELECT 1") },
      requests: counting ? async () => (await client.query(COUNTED)).rows[0].count : undefined,
      async stop() {
        await client.end();
        await server.stop();
      },
    };
  },
  contestants: { holdfast, "bare table": bareTable, "advisory lock": advisory },
};
