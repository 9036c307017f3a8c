import { EngineRefusedError, UnsupportedError } from "../../core/errors.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Safety } from "../../sql/guarantees.js";
import { textOf } from "./driver.js";
import type { Mysql2Driver } from "./drivers/mysql2.js";

type Flavour = "mariadb" | "mysql";

/** What the server says about itself. */
export type Server = Safety & {
  readonly galera: boolean;
  /** Each statement is a transaction by itself, on this pool's connections. */
  readonly autocommit: boolean;
};

const VARIABLES = [
  "read_only",
  "super_read_only",
  "innodb_flush_log_at_trx_commit",
  "log_bin",
  "sync_binlog",
  "wsrep_on",
];

export async function probe(driver: Mysql2Driver): Promise<Server> {
  const names = VARIABLES.map((name) => `'${name}'`).join(", ");
  const ask = (sql: string): Promise<Record<string, string>> => pairs(driver, sql);
  const [version] = Object.entries(await ask("SELECT VERSION() AS version, @@version_comment AS comment LIMIT 1"));
  const has = await ask(`SHOW GLOBAL VARIABLES WHERE Variable_name IN (${names})`);
  const status = await ask("SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_connected')");
  const [autocommit] = Object.keys(await ask("SELECT @@SESSION.autocommit AS autocommit, 1 AS one LIMIT 1"));
  const flavour = checkVersion(version?.[0] ?? "");
  if (has.read_only === "ON" || has.super_read_only === "ON") {
    const cause = new Error("this server is set to read only: it is a replica, or about to become one");
    throw new EngineRefusedError("mysql", "Connect to the primary.", cause);
  }
  const galera = has.wsrep_on === "ON";
  const logged = has.log_bin === "ON";
  return {
    galera,
    autocommit: autocommit === "1",
    // With a binary log a crash is recovered from it: it must be on the disk too.
    durable:
      has.innodb_flush_log_at_trx_commit === "1" && (!logged || has.sync_binlog === "1" || flavour === "mariadb"),
    // MariaDB counts its replicas for everybody. Elsewhere, who writes a binary log may have some.
    failoverForgets: galera || (flavour === "mariadb" ? status.Slaves_connected !== "0" : logged),
  };
}

/** What tells one server from another: MySQL's `server_uuid`, MariaDB's `server_uid`, and where it lives. */
const IDENTITY = ["server_uuid", "server_uid", "hostname", "port", "datadir"];

/** Who the server is, now. */
export async function serverInfo(driver: Mysql2Driver): Promise<ServerInfo> {
  const names = IDENTITY.map((name) => `'${name}'`).join(", ");
  const is = await pairs(driver, `SHOW GLOBAL VARIABLES WHERE Variable_name IN (${names})`);
  const status = await pairs(
    driver,
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('Uptime', 'Slaves_connected', 'wsrep_cluster_size')",
  );
  const replicas = Number(status.Slaves_connected ?? Number.NaN);
  return {
    server: `mysql ${IDENTITY.map((name) => is[name] ?? "").join(" ")}`,
    // Whole seconds: it may have started nearly one later than that.
    upMs: Math.max(0, (Number(status.Uptime) - 1) * 1000),
    ...(Number.isFinite(replicas) ? { replicas } : {}),
    cluster: Number(status.wsrep_cluster_size ?? 0) > 0,
  };
}

/** Rows of two columns: names and values. */
async function pairs(driver: Mysql2Driver, sql: string): Promise<Record<string, string>> {
  const [rows = []] = await driver.run(sql);
  return Object.fromEntries(rows.map((row) => Object.values(row).map(textOf)) as [string, string][]);
}

function checkVersion(version: string): Flavour {
  const [, major = "0", minor = "0"] = /(\d+)\.(\d+)/.exec(version) ?? [];
  const number = Number(major) * 100 + Number(minor);
  const flavour: Flavour = /mariadb/i.test(version) ? "mariadb" : "mysql";
  if (number >= (flavour === "mariadb" ? 1006 : 800)) return flavour;
  throw new UnsupportedError("mysql", `the server is of version ${version}`, "Use MariaDB 10.6 or MySQL 8, or later.");
}
