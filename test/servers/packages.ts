import { execFileSync, spawnSync } from "node:child_process";
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readdirSync,
  readSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { delimiter, join } from "node:path";

/** Something that tests need beside npm's packages: how its programs are called and which Debian packages bring them. */
type Server = {
  readonly programs: readonly string[];
  readonly packages: readonly string[];
  /** Where to look before PATH. */
  readonly folders?: readonly string[];
  /** What must also be so, for a library that is no program: a command that succeeds. */
  readonly check?: readonly string[];
};

const SERVERS = {
  Redis: {
    programs: ["redis-server", "redis-sentinel", "redis-cli"],
    packages: ["redis-server", "redis-sentinel", "redis-tools"],
  },
  /** Debian's Python with redis-py, to share locks with. */
  "redis-py": {
    programs: ["python3"],
    packages: ["python3-redis"],
    folders: ["/usr/bin"],
    check: ["/usr/bin/python3", "-c", "import redis"],
  },
  PostgreSQL: {
    programs: ["initdb", "postgres", "pg_basebackup"],
    packages: ["postgresql"],
    get folders() {
      // Another version's programs, for whoever wants all tests to run on it.
      const { HOLDFAST_POSTGRES_BIN: other } = process.env;
      return [...(other === undefined ? [] : [other]), ...versionsOfPostgres()];
    },
  },
  PgBouncer: { programs: ["pgbouncer"], packages: ["pgbouncer"] },
  MariaDB: { programs: ["mariadbd", "mariadb-install-db"], packages: ["mariadb-server"] },
  /** The library that makes a cluster of MariaDB servers. */
  Galera: {
    programs: ["mariadbd"],
    packages: ["mariadb-server", "galera-4"],
    check: ["test", "-e", "/usr/lib/galera/libgalera_smm.so"],
  },
  etcd: { programs: ["etcd", "etcdctl"], packages: ["etcd-server", "etcd-client"] },
  ZooKeeper: {
    programs: ["java"],
    packages: ["zookeeper", "libzookeeper-java", "default-jre-headless"],
    check: ["test", "-e", "/usr/share/java/zookeeper.jar"],
  },
  /** Debian's Python with Kazoo, to share locks with. */
  Kazoo: {
    programs: ["python3"],
    packages: ["python3-kazoo"],
    folders: ["/usr/bin"],
    check: ["/usr/bin/python3", "-c", "import kazoo"],
  },
  /** Curator's recipes, and a compiler for the program that uses them. */
  Curator: {
    programs: ["java", "javac"],
    packages: ["libcurator-recipes-java", "default-jdk-headless"],
    check: ["test", "-e", "/usr/share/java/curator-recipes.jar"],
  },
  memcached: { programs: ["memcached"], packages: ["memcached"] },
  Prometheus: { programs: ["prometheus", "promtool"], packages: ["prometheus"] },
  /** A browser for the live view, and letters for it: right-to-left ones too. */
  Chromium: {
    programs: ["chromium"],
    packages: ["chromium", "fonts-dejavu-core"],
    check: ["test", "-e", "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"],
  },
  /** To compile the shim that moves one server's clock. */
  GCC: { programs: ["gcc"], packages: ["gcc", "libc6-dev"] },
  /** To complete the command line in. */
  Zsh: { programs: ["zsh"], packages: ["zsh"] },
  OpenSSL: { programs: ["openssl"], packages: ["openssl"] },
} satisfies Record<string, Server>;

export type ServerName = keyof typeof SERVERS;

export const isServer = (name: string): name is ServerName => Object.hasOwn(SERVERS, name);

/** Debian keeps each version's programs in a folder of their own. */
function versionsOfPostgres(): string[] {
  const folder = "/usr/lib/postgresql";
  const versions = existsSync(folder) ? readdirSync(folder) : [];
  return versions.toSorted((a, b) => Number(b) - Number(a)).map((version) => join(folder, version, "bin"));
}

/** The path of each program of a server. They are there: `install-first.ts` saw to it before the run. */
export function programsOf(name: ServerName): Readonly<Record<string, string>> {
  const server: Server = SERVERS[name];
  const lacking = missing(server);
  if (lacking.length > 0) throw new Error(`${name}: ${lacking.join(", ")} not found`);
  return Object.fromEntries(server.programs.map((program) => [program, find(server, program) ?? ""]));
}

/** Never skipped in silence: what cannot be installed here fails the run, and the line to run is printed. */
export function install(names: readonly ServerName[]): void {
  const absent = names.filter((name) => missing(SERVERS[name]).length > 0);
  if (absent.length === 0) return;
  const packages = absent.flatMap((name) => SERVERS[name].packages);
  const line = `apt-get update && apt-get install -y --no-install-recommends ${packages.join(" ")}`;
  const wanted = `these tests need ${absent.join(", ")}`;
  if (!isProgram("/usr/bin/apt-get")) throw new Error(`${wanted}; install that with your system's package manager`);
  if (process.getuid?.() !== 0) throw new Error(`${wanted}; run: sudo sh -c '${line}'`);
  console.log(`${wanted}; the Debian packages are ${packages.join(" ")}`);
  if (!agreed("Install them now? [Y/n] ")) throw new Error(`${wanted}; run: ${line}`);
  const undo = keepDaemonsFromStarting();
  try {
    aptGet("update");
    aptGet("install", "-y", "--no-install-recommends", ...packages);
  } finally {
    undo();
  }
  const still = absent.filter((name) => missing(SERVERS[name]).length > 0);
  if (still.length > 0) throw new Error(`${still.join(", ")} not found after installing ${packages.join(" ")}`);
}

function aptGet(...args: readonly string[]): void {
  execFileSync("apt-get", ["-q", "-o", "DPkg::Lock::Timeout=300", ...args], {
    stdio: ["ignore", "ignore", "inherit"],
    env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
  });
}

function find(server: Server, program: string): string | undefined {
  const folders = [...(server.folders ?? []), ...(process.env.PATH ?? "").split(delimiter), "/usr/sbin"];
  return folders.map((folder) => join(folder, program)).find(isProgram);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function missing(server: Server): string[] {
  const lacking = server.programs.filter((program) => find(server, program) === undefined);
  if (lacking.length > 0 || server.check === undefined) return lacking;
  const [program = "", ...args] = server.check;
  return spawnSync(program, args).status === 0 ? [] : [server.check.join(" ")];
}

/** On a terminal somebody can be asked; elsewhere the list was printed and that is that. */
function agreed(question: string): boolean {
  if (process.env.CI) return true;
  let terminal: number;
  try {
    terminal = openSync("/dev/tty", "r+");
  } catch {
    return true;
  }
  try {
    writeSync(terminal, question);
    const answer = Buffer.alloc(64);
    const length = readSync(terminal, answer);
    return /^(y|yes)?$/i.test(answer.toString("utf8", 0, length).trim());
  } finally {
    closeSync(terminal);
  }
}

const POLICY = "/usr/sbin/policy-rc.d";

/** Debian starts a server when it is installed, on the port that others expect. Ours have ports of their own. */
function keepDaemonsFromStarting(): () => void {
  if (existsSync(POLICY)) return () => {};
  writeFileSync(POLICY, "#!/bin/sh\nexit 101\n", { mode: 0o755 });
  return () => rmSync(POLICY);
}
