import { EngineRefusedError } from "../../core/errors.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Safety } from "../../sql/guarantees.js";
import type { Driver } from "./driver.js";

const PROBE = `SELECT
  pg_is_in_recovery()::text AS recovery,
  current_setting('server_encoding') AS encoding,
  current_setting('fsync') AS fsync,
  current_setting('synchronous_commit') AS commit,
  current_setting('synchronous_standby_names') AS standbys,
  (SELECT count(*) FROM pg_stat_get_wal_senders())::text AS senders`;

/** What the server says about itself. */
export async function probe(driver: Driver): Promise<Safety> {
  const { rows } = await driver.run({ text: PROBE });
  const { recovery, encoding, fsync, commit, standbys, senders } = rows[0] ?? {};
  if (recovery === "true") {
    const cause = new Error("this server is a replica and only reads");
    throw new EngineRefusedError("postgres", "Connect to the primary.", cause);
  }
  if (encoding !== "UTF8") {
    const cause = new Error(`this database's encoding is ${String(encoding)}, which cannot hold every name`);
    throw new EngineRefusedError("postgres", "Use a database whose encoding is UTF8.", cause);
  }
  const waits = standbys !== "" && (commit === "on" || commit === "remote_apply");
  // Replicas, and commits that do not wait for them.
  const failoverForgets = senders !== "0" && !waits;
  return { durable: fsync === "on" && commit !== "off", failoverForgets };
}

const SERVER_INFO = `SELECT
  (SELECT system_identifier FROM pg_control_system())::text AS server,
  floor(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::text AS up,
  pg_is_in_recovery()::text AS recovery,
  (SELECT count(*) FROM pg_stat_get_wal_senders())::text AS senders`;

/** Who the server is, now: a replica has the identifier of its primary. */
export async function serverInfo(driver: Driver): Promise<ServerInfo> {
  const { rows } = await driver.run({ text: SERVER_INFO });
  const { server, up, recovery, senders } = rows[0] ?? {};
  const replica = recovery === "true";
  return { server: `postgres ${String(server)}`, upMs: Number(up), replica, replicas: Number(senders) };
}
