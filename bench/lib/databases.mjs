// The databases that `npm run bench -- sql` measures: a server of its own each, our client on it, and what it is held against.
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { connect } from "../../dist/index.js";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Both servers refuse to run as root: root lends them the package's user. */
function asUser(user, program, args) {
  if (process.getuid() !== 0) return [program, args];
  return ["setpriv", [`--reuid=${user}`, `--regid=${user}`, "--clear-groups", program, ...args]];
}

function folderOf(user) {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  if (process.getuid() === 0) execFileSync("chown", [`${user}:`, folder]);
  return folder;
}

async function serve(program, args, folder, ready) {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"], cwd: folder });
  let said = "";
  child.stderr.on("data", (data) => (said = (said + data).slice(-2000)));
  for (let n = 0; ; n += 1) {
    try {
      await ready();
      break;
    } catch (error) {
      if (n > 200 || child.exitCode !== null) throw new Error(`${program} did not start: ${said}`, { cause: error });
      await pause(100);
    }
  }
  return async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null)
      await new Promise((resolve) => child.once("exit", resolve));
    rmSync(folder, { recursive: true, force: true });
  };
}

async function startPostgres() {
  const versions = readdirSync("/usr/lib/postgresql").toSorted((a, b) => Number(b) - Number(a));
  const bin = `/usr/lib/postgresql/${versions[0]}/bin`;
  const folder = folderOf("postgres");
  const run = (program, args) => asUser("postgres", join(bin, program), args);
  const [initdb, initArgs] = run("initdb", [
    "-D",
    `${folder}/data`,
    "-U",
    "postgres",
    "-A",
    "trust",
    "-E",
    "UTF8",
    "--locale=C",
  ]);
  execFileSync(initdb, initArgs, { stdio: "ignore", cwd: folder });
  const port = await freePort();
  const settings = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="];
  const [program, args] = run("postgres", ["-D", `${folder}/data`, "-p", String(port), ...settings]);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const open = async () => {
    const client = new Client({ connectionString: url });
    client.on("error", () => {});
    await client.connect();
    return client;
  };
  const end = await serve(program, args, folder, async () => (await open()).end());
  const client = await open();
  await client.query("CREATE TABLE bare (name text PRIMARY KEY, owner text NOT NULL)");
  const [locks, other] = [await connect(url), await connect(url)];
  return {
    locks,
    other,
    bare: {
      select: () => client.query("SELECT 1"),
      async pair() {
        await client.query("INSERT INTO bare VALUES ($1, $2) ON CONFLICT DO NOTHING", ["pair", "me"]);
        await client.query("DELETE FROM bare WHERE name = $1 AND owner = $2", ["pair", "me"]);
      },
    },
    builtIn: {
      name: "advisory lock",
      async pair() {
        await client.query("SELECT pg_advisory_lock(hashtext($1))", ["pair"]);
        await client.query("SELECT pg_advisory_unlock(hashtext($1))", ["pair"]);
      },
    },
    async stop() {
      await Promise.all([locks.close(), other.close()]);
      await client.end();
      await end();
    },
  };
}

async function startMariadb() {
  const folder = folderOf("mysql");
  const user = process.getuid() === 0 ? ["--user=mysql"] : [];
  const base = ["--no-defaults", `--datadir=${folder}/data`, ...user];
  execFileSync("mariadb-install-db", [...base, "--auth-root-authentication-method=normal"], { stdio: "ignore" });
  const port = await freePort();
  const url = `mysql://root@127.0.0.1:${port}`;
  const settings = [`--port=${port}`, `--socket=${folder}/socket`, "--bind-address=127.0.0.1"];
  const open = async () => createConnection({ uri: url });
  const end = await serve("mariadbd", [...base, ...settings], folder, async () => (await open()).end());
  const client = await open();
  await client.query("CREATE DATABASE bare");
  await client.query("CREATE TABLE bare.bare (name VARBINARY(512) PRIMARY KEY, owner VARBINARY(64)) ENGINE = InnoDB");
  const [locks, other] = [await connect(url), await connect(url)];
  return {
    locks,
    other,
    bare: {
      select: () => client.query("SELECT 1"),
      async pair() {
        await client.query("INSERT IGNORE INTO bare.bare VALUES (?, ?)", ["pair", "me"]);
        await client.query("DELETE FROM bare.bare WHERE name = ? AND owner = ?", ["pair", "me"]);
      },
    },
    builtIn: {
      name: "GET_LOCK",
      async pair() {
        await client.query("SELECT GET_LOCK(?, 10)", ["pair"]);
        await client.query("SELECT RELEASE_LOCK(?)", ["pair"]);
      },
    },
    async stop() {
      await Promise.all([locks.close(), other.close()]);
      await client.end();
      await end();
    },
  };
}

export const databases = [
  { name: "postgres", start: startPostgres },
  { name: "mariadb", start: startMariadb },
];
