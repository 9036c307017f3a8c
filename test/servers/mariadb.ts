import { execFileSync } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync } from "node:fs";
import { join } from "node:path";
import { createConnection, createPool, type Pool, type PoolOptions } from "mysql2/promise";
import { programsOf } from "./packages.js";
import { freePorts, pause, quickFolder, Running, until } from "./process.js";

export type MariadbServer = {
  readonly port: number;
  readonly url: string;
  readonly folder: string;
  readonly args: readonly string[];
  readonly env: Environment;
  running: Running;
};

type Environment = Readonly<Record<string, string>>;

const asRoot = process.getuid?.() === 0;

/** One server with a folder and a port of its own, and the user `root` without a password. */
export async function startMariadb(args: readonly string[] = [], env: Environment = {}): Promise<MariadbServer> {
  const { "mariadb-install-db": install = "" } = programsOf("MariaDB");
  const folder = ownFolder();
  const options = [
    "--no-defaults",
    `--datadir=${folder}/data`,
    `--tmpdir=${folder}`,
    "--auth-root-authentication-method=normal",
    "--skip-test-db",
  ];
  execFileSync(install, [...options, ...(asRoot ? ["--user=mysql"] : [])], { stdio: ["ignore", "ignore", "pipe"] });
  return launch(folder, (await freePorts(1))[0] ?? 0, args, env);
}

function ownFolder(): string {
  const folder = mkdtempSync(join(quickFolder(), "holdfast-mariadb-"));
  if (asRoot) giveAway(folder);
  return folder;
}

/** To the package's user: MariaDB refuses to run as root. */
function giveAway(folder: string): void {
  const id = (flag: string): number => Number(execFileSync("id", [flag, "mysql"], { encoding: "utf8" }));
  chownSync(folder, id("-u"), id("-g"));
}

async function launch(folder: string, port: number, args: readonly string[], env: Environment): Promise<MariadbServer> {
  const base = ["--no-defaults", `--datadir=${folder}/data`, `--port=${port}`, `--socket=${folder}/socket`];
  const all = [
    ...base,
    // Each server that starts removes all temporary tables in this folder, also those that another one is using.
    `--tmpdir=${folder}`,
    "--bind-address=127.0.0.1",
    "--max-connections=400",
    ...args,
    ...(asRoot ? ["--user=mysql"] : []),
  ];
  const url = `mysql://root@127.0.0.1:${port}`;
  const running = await Running.start({
    program: programsOf("MariaDB").mariadbd ?? "",
    args: () => all,
    folder,
    env,
    // By its folder: where somebody else took the port first, their server answers until ours has given up.
    ready: async () => {
      const [row] = await query(url, "SELECT @@datadir AS folder");
      if (!String(row?.folder).startsWith(`${folder}/`)) throw new Error(`port ${port} is another server's`);
    },
  });
  return { port, url, folder, args, env, running };
}

/** The same server again, on the same port and folder. */
export async function restartMariadb(server: MariadbServer): Promise<MariadbServer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await launch(server.folder, server.port, server.args, server.env);
    } catch (error) {
      if (attempt === 20) throw error;
      await pause(300);
    }
  }
}

/** An empty server that follows one which was started with `--log-bin`. */
export async function startMariadbReplica(primary: MariadbServer): Promise<MariadbServer> {
  const replica = await startMariadb(["--server-id=2"]);
  const from = `MASTER_HOST = '127.0.0.1', MASTER_PORT = ${primary.port}, MASTER_USER = 'root'`;
  await query(replica.url, `CHANGE MASTER TO ${from}, MASTER_USE_GTID = slave_pos; START SLAVE`);
  return replica;
}

/** A Galera cluster on loopback. Its nodes join one after the other; each but the first gets its data from one that is there. */
export async function startGalera(count: number): Promise<readonly MariadbServer[]> {
  programsOf("Galera");
  const ports = await freePorts(3 * count);
  const nodes: MariadbServer[] = [];
  for (let n = 0; n < count; n += 1) {
    const [cluster, whole, missing] = ports.slice(3 * n, 3 * n + 3);
    const provider = {
      "gmcast.listen_addr": `tcp://127.0.0.1:${cluster}`,
      "ist.recv_addr": `127.0.0.1:${missing}`,
      "gcache.size": "4M",
    };
    const options = Object.entries(provider).map(([key, value]) => `${key}=${value}`);
    const args = [
      "--wsrep-on=ON",
      "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
      `--wsrep-cluster-address=gcomm://${n === 0 ? "" : `127.0.0.1:${ports[0]}`}`,
      "--wsrep-node-address=127.0.0.1",
      `--wsrep-provider-options=${options.join(";")}`,
      `--wsrep-sst-receive-address=127.0.0.1:${whole}`,
      "--wsrep-sst-method=rsync",
      "--binlog-format=ROW",
      "--innodb-autoinc-lock-mode=2",
    ];
    const node = n === 0 ? await startMariadb(args) : await joinGalera(args);
    nodes.push(node);
    await until("the node is in the cluster", async () => {
      const [row] = await query(node.url, "SHOW STATUS LIKE 'wsrep_ready'");
      return row?.Value === "ON";
    });
  }
  return nodes;
}

/** With an empty folder: all of it comes from the cluster. */
async function joinGalera(args: readonly string[]): Promise<MariadbServer> {
  const folder = ownFolder();
  mkdirSync(join(folder, "data"));
  if (asRoot) giveAway(join(folder, "data"));
  return launch(folder, (await freePorts(1))[0] ?? 0, args, {});
}

/** For tests that look past the engine. */
export async function query(url: string, sql: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const connection = await createConnection({ uri: url, connectTimeout: 3000, multipleStatements: true });
  connection.on("error", () => {});
  try {
    const [rows] = await connection.query(sql, values);
    return rows as Record<string, unknown>[];
  } finally {
    connection.destroy();
  }
}

export function poolOf(url: string, options: PoolOptions = {}): Pool {
  return createPool({ uri: url, connectTimeout: 5000, ...options });
}
