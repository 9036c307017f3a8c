// PostgreSQL and MariaDB servers of our own for a benchmark.
import { execFileSync, spawn } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createConnection } from "mysql2/promise";
import { Client } from "pg";
import { pause } from "../stores/holdfast.mjs";
import { freePort, newFolder } from "./room.mjs";

/** Both servers refuse to run as root: root lends them the package's user. */
function asUser(user, program, args) {
  if (process.getuid() !== 0) return [program, args];
  return ["setpriv", [`--reuid=${user}`, `--regid=${user}`, "--clear-groups", program, ...args]];
}

function folderOf(user, onDisk) {
  const folder = newFolder(onDisk);
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
  process.once("exit", () => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  return async () => {
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null)
      await new Promise((resolve) => child.once("exit", resolve));
    rmSync(folder, { recursive: true, force: true });
  };
}

export async function openPostgres(url) {
  const client = new Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  return client;
}

export const openMariadb = (url) => createConnection({ uri: url });

export async function startPostgres({ onDisk = false, more = [] } = {}) {
  const versions = readdirSync("/usr/lib/postgresql").toSorted((a, b) => Number(b) - Number(a));
  const bin = `/usr/lib/postgresql/${versions[0]}/bin`;
  const folder = folderOf("postgres", onDisk);
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
  // Shared memory in the server's folder, which is removed with it: a killed one would leave its segments in /dev/shm.
  const settings = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "dynamic_shared_memory_type=mmap"]
    .flatMap((setting) => ["-c", setting])
    .concat(more);
  const [program, args] = run("postgres", ["-D", `${folder}/data`, "-p", String(port), ...settings]);
  const url = `postgres://postgres@127.0.0.1:${port}/postgres`;
  const open = () => openPostgres(url);
  const stop = await serve(program, args, folder, async () => (await open()).end());
  return { url, open, stop };
}

export async function startMariadb({ onDisk = false } = {}) {
  const folder = folderOf("mysql", onDisk);
  const user = process.getuid() === 0 ? ["--user=mysql"] : [];
  // A server that starts removes all temporary tables in its folder for them, also those that another one is using.
  const base = ["--no-defaults", `--datadir=${folder}/data`, `--tmpdir=${folder}`, ...user];
  execFileSync("mariadb-install-db", [...base, "--auth-root-authentication-method=normal"], { stdio: "ignore" });
  const port = await freePort();
  const url = `mysql://root@127.0.0.1:${port}`;
  const settings = [`--port=${port}`, `--socket=${folder}/socket`, "--bind-address=127.0.0.1"];
  const open = () => openMariadb(url);
  const stop = await serve("mariadbd", [...base, ...settings], folder, async () => (await open()).end());
  return { url, open, stop };
}
