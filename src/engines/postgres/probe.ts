import { EngineRefusedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Connections } from "./client.js";
import { translated } from "./refusals.js";

/** What the server says about itself. */
export type Server = { readonly durable: boolean; readonly replicas: "none" | "synchronous" | "asynchronous" };

const PROBE = `SELECT
  pg_is_in_recovery()::text AS recovery,
  current_setting('server_encoding') AS encoding,
  current_setting('fsync') AS fsync,
  current_setting('synchronous_commit') AS commit,
  current_setting('synchronous_standby_names') AS standbys,
  (SELECT count(*) FROM pg_stat_get_wal_senders())::text AS senders`;

export async function probe(connections: Connections): Promise<Server> {
  const { rows } = await connections.run({ text: PROBE }).catch((cause: unknown) => {
    throw translated(cause);
  });
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
  const replicas = senders === "0" ? "none" : waits ? "synchronous" : "asynchronous";
  return { durable: fsync === "on" && commit !== "off", replicas };
}

const ABOUT = `SELECT
  (SELECT system_identifier FROM pg_control_system())::text AS server,
  floor(extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::text AS up,
  pg_is_in_recovery()::text AS recovery,
  (SELECT count(*) FROM pg_stat_get_wal_senders())::text AS senders`;

/** Who the server is, now: a replica has the identifier of its primary. */
export async function about(connections: Connections): Promise<ServerInfo> {
  const { rows } = await connections.run({ text: ABOUT }).catch((cause: unknown) => {
    throw translated(cause);
  });
  const { server, up, recovery, senders } = rows[0] ?? {};
  const replica = recovery === "true";
  return { server: `postgres ${String(server)}`, upMs: Number(up), replica, replicas: Number(senders) };
}

/** A promise for each thing that was read off the server; what was not read is not promised. */
export function guaranteesOf(server: Server, durable: boolean, wake: "push" | "poll"): Guarantees {
  const keeps = durable && server.durable;
  const safe = keeps && server.replicas !== "asynchronous";
  return {
    // A crash without durable commits, and a replica that is promoted without them, forget the same: the last grants.
    exclusion: safe ? "single-server" : "until-failover",
    token: safe ? "monotonic" : "monotonic-if-clocks",
    order: "fifo",
    wake,
    crashRelease: "lease",
    survivesRestart: keeps,
  };
}
