import { execFileSync } from "node:child_process";
import { chownSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, Pool, type PoolConfig } from "pg";
import { programsOf } from "./packages.js";
import { freePorts, pause, quickFolder, Running, until } from "./process.js";

export type PostgresServer = {
  readonly port: number;
  readonly url: string;
  readonly folder: string;
  readonly args: readonly string[];
  readonly env: Environment;
  readonly programs: Programs;
  running: Running;
};

/** The paths of `initdb` and `postgres`. */
export type Programs = Readonly<Record<string, string>>;

type Environment = Readonly<Record<string, string>>;

/** PostgreSQL and PgBouncer refuse to run as root: root lends them the package's user. */
export function asUser(program: string, args: readonly string[]): readonly [program: string, args: readonly string[]] {
  if (process.getuid?.() !== 0) return [program, args];
  return ["setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", program, ...args]];
}

function ownFolder(): string {
  const folder = mkdtempSync(join(quickFolder(), "holdfast-postgres-"));
  if (process.getuid?.() === 0) {
    const id = (flag: string): number => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
    chownSync(folder, id("-u"), id("-g"));
  }
  return folder;
}

function run(program: string, args: readonly string[]): void {
  const [real, all] = asUser(program, args);
  execFileSync(real, all, { stdio: ["ignore", "ignore", "pipe"], cwd: tmpdir() });
}

/** One server with a folder and a port of its own, and the user and database `postgres` without a password. */
export async function startPostgres(
  args: readonly string[] = [],
  env: Environment = {},
  programs: Programs = programsOf("PostgreSQL"),
): Promise<PostgresServer> {
  const folder = ownFolder();
  const options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"];
  run(programs.initdb ?? "", ["-D", join(folder, "data"), ...options]);
  return launch({ folder, port: (await freePorts(1))[0] ?? 0, args, env, programs });
}

async function launch({
  folder,
  port,
  args,
  env,
  programs,
}: Omit<PostgresServer, "url" | "running">): Promise<PostgresServer> {
  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    max_connections: "200",
    // In the server's folder, which is removed with it: a killed one would leave its segments in /dev/shm.
    dynamic_shared_memory_type: "mmap",
  };
  const flags = Object.entries(settings).flatMap(([key, value]) => ["-c", `${key}=${value}`]);
  const base = ["-D", join(folder, "data"), "-p", String(port), ...flags, ...args];
  const [program, all] = asUser(programs.postgres ?? "", base);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const running = await Running.start({
    program,
    args: () => all,
    folder,
    env,
    ready: () => query(url, "SELECT 1").then(() => {}),
  });
  return { port, url, folder, args, env, programs, running };
}

/** The same server again, on the same port and folder. What was killed may need a moment until its processes are gone. */
export async function restartPostgres(server: PostgresServer): Promise<PostgresServer> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await launch(server);
    } catch (error) {
      if (attempt === 20) throw error;
      await pause(300);
    }
  }
}

/** A copy of a running server that follows it. */
export async function startReplica(primary: PostgresServer): Promise<PostgresServer> {
  const folder = ownFolder();
  const programs = programsOf("PostgreSQL");
  const from = ["-h", "127.0.0.1", "-p", String(primary.port), "-U", "postgres"];
  run(programs.pg_basebackup ?? "", [
    ...from,
    "-D",
    join(folder, "data"),
    "-R",
    "-X",
    "stream",
    "-c",
    "fast",
    "--no-sync",
  ]);
  return launch({ folder, port: (await freePorts(1))[0] ?? 0, args: [], env: {}, programs });
}

export type PgBouncer = { readonly url: string; readonly running: Running };

/** PgBouncer in transaction mode before a server, with few connections so that they are shared for certain. */
export async function startPgBouncer(server: PostgresServer): Promise<PgBouncer> {
  const folder = ownFolder();
  const [port = 0] = await freePorts(1);
  const { pgbouncer: program = "" } = programsOf("PgBouncer");
  const file = join(folder, "pgbouncer.ini");
  const lines = [
    "[databases]",
    `postgres = host=127.0.0.1 port=${server.port} dbname=postgres user=postgres`,
    "[pgbouncer]",
    "listen_addr = 127.0.0.1",
    `listen_port = ${port}`,
    "unix_socket_dir =",
    "auth_type = any",
    "pool_mode = transaction",
    "default_pool_size = 3",
    "ignore_startup_parameters = extra_float_digits",
  ];
  writeFileSync(file, `${lines.join("\n")}\n`, { mode: 0o644 });
  const [real, args] = asUser(program, [file]);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const running = await Running.start({
    program: real,
    args: () => args,
    folder,
    ready: () => query(url, "SELECT 1").then(() => {}),
  });
  return { url, running };
}

/** For tests that look past the engine. */
export async function query(url: string, text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 3000 });
  client.on("error", () => {});
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(text, values);
    return rows;
  } finally {
    await client.end();
  }
}

/** A pool whose broken connections are nobody's problem. */
export function poolOf(url: string, options: PoolConfig = {}): Pool {
  const pool = new Pool({ connectionString: url, connectionTimeoutMillis: 5000, ...options });
  pool.on("error", () => {});
  return pool;
}

/** Until no replica lags behind. */
export async function inStep(primary: PostgresServer, replica: PostgresServer): Promise<void> {
  const [row] = await query(primary.url, "SELECT pg_current_wal_lsn()::text AS lsn");
  await until("the replica is in step", async () => {
    const text = "SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text AS there";
    return (await query(replica.url, text, [row?.lsn]))[0]?.there === "true";
  });
}
