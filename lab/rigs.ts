import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { connect } from "../src/connect.js";
import { callsFrom } from "../test/servers/caller.js";
import { type MovableClock, movableClock } from "../test/servers/clock-shim.js";
import { restart, startEtcd } from "../test/servers/etcd.js";
import { query as mariadbQuery, restartMariadb, startMariadb, startMariadbReplica } from "../test/servers/mariadb.js";
import { inStep, query, restartPostgres, startPostgres, startReplica } from "../test/servers/postgres.js";
import { type Running, until } from "../test/servers/process.js";
import { Proxy } from "../test/servers/proxy.js";
import { command, restartRedis, startRedis } from "../test/servers/redis.js";
import { startEnsemble, startZooKeeper, untilLeader, type ZooKeeperServer } from "../test/servers/zookeeper.js";

/** What a fault wants of an engine's servers, besides that they run. */
export type Need = "plain" | "clock" | "spare" | "replica" | "cluster" | "partition";

/** One server process. */
export type Server = {
  readonly port: number;
  running(): Running;
  /** The same again, with the data it had; without, where that can be done. */
  restart(wiped?: boolean): Promise<void>;
};

/** The servers of a run. */
export type Rig = {
  readonly servers: readonly Server[];
  /** Where the lock is in a file: its path. */
  readonly file?: string;
  /** Takes the place of the first server (of the second, in a quorum): empty, or a copy. */
  readonly spare?: Server;
  /** From now on the copy hears nothing new; and later it is the one that is written to. */
  readonly promote?: { stopFollowing(): Promise<void>; now(): Promise<void> };
  /** A calendar for each server; where there is no server, for the contenders. */
  readonly clocks?: readonly MovableClock[];
  readonly leader?: () => Promise<number>;
  readonly isolate?: (server: number) => void;
  readonly rejoin?: () => void;
  stop(): Promise<void>;
};

export type EngineName = "sqlite" | "redis" | "quorum" | "postgres" | "mariadb" | "zookeeper" | "etcd";

export type EngineRow = {
  readonly name: EngineName;
  readonly title: string;
  /** As short as the store allows and a busy machine bears. */
  readonly leaseMs: number;
  url(ports: readonly number[], rig: Rig): string;
  options(leaseMs: number): object;
  start(need: Need): Promise<Rig>;
};

const host = (port: number): string => `127.0.0.1:${port}`;
const hosts = (ports: readonly number[]): string => ports.map(host).join(",");
const stopAll = async (servers: readonly Server[]): Promise<void> =>
  void (await Promise.all(servers.map((server) => server.running().stop())));

/** A server that can be started again, out of what its kind has for that. */
function serverOf<S extends { port: number; running: Running }>(first: S, again: (server: S) => Promise<S>): Server {
  let server = first;
  return {
    port: first.port,
    running: () => server.running,
    async restart() {
      server = await again(server);
    },
  };
}

const DURABLE = ["--appendonly", "yes", "--appendfsync", "always"];

async function redisServer(clock?: MovableClock): Promise<Server> {
  return serverOf(await startRedis(DURABLE, undefined, clock?.env), restartRedis);
}

/** A copy of a server that heard everything until it was told not to listen any more. */
async function redisReplica(primary: Server): Promise<Pick<Required<Rig>, "spare" | "promote">> {
  const args = [...DURABLE, "--replicaof", "127.0.0.1", String(primary.port), "--repl-diskless-sync-delay", "0"];
  const spare = serverOf(await startRedis(args), restartRedis);
  await until("the replica is in step", async () =>
    (await command(spare.port, "INFO replication")).includes("master_link_status:up"),
  );
  const stopFollowing = async (): Promise<void> => void (await command(spare.port, "REPLICAOF 127.0.0.1 1"));
  return { spare, promote: { stopFollowing, now: async () => void (await command(spare.port, "REPLICAOF NO ONE")) } };
}

async function redisRig(count: number, need: Need): Promise<Rig> {
  const clocks = need === "clock" ? Array.from({ length: count }, () => movableClock()) : undefined;
  const servers = await Promise.all(Array.from({ length: count }, (_, n) => redisServer(clocks?.[n])));
  const replaced = servers[count === 1 ? 0 : 1] as Server;
  const more =
    need === "replica" ? await redisReplica(replaced) : need === "spare" ? { spare: await redisServer() } : {};
  return {
    servers,
    ...more,
    ...(clocks === undefined ? {} : { clocks }),
    stop: () => stopAll([...servers, ...("spare" in more ? [more.spare] : [])]),
  };
}

/** A store with one server: `start` makes one, on a clock of its own or not, and `copy` one that follows it. */
async function singleRig(
  need: Need,
  start: (env: Readonly<Record<string, string>>) => Promise<Server>,
  copy?: (primary: Server) => Promise<Pick<Required<Rig>, "spare" | "promote">>,
): Promise<Rig> {
  const clock = need === "clock" ? movableClock() : undefined;
  const server = await start(clock?.env ?? {});
  const more =
    need === "replica" && copy !== undefined ? await copy(server) : need === "spare" ? { spare: await start({}) } : {};
  return {
    servers: [server],
    ...more,
    ...(clock === undefined ? {} : { clocks: [clock] }),
    stop: () => stopAll([server, ...("spare" in more ? [more.spare] : [])]),
  };
}

/** A database that comes up empty has the tables at least: otherwise nobody could go on. */
async function makeTables(url: string): Promise<void> {
  await (await connect(url)).close();
}

async function postgresRig(need: Need): Promise<Rig> {
  let primary: Awaited<ReturnType<typeof startPostgres>> | undefined;
  return singleRig(
    need,
    async (env) => {
      const server = await startPostgres([], env);
      primary ??= server;
      await makeTables(server.url);
      return serverOf(server, restartPostgres);
    },
    async () => {
      if (primary === undefined) throw new Error("no primary");
      const replica = await startReplica(primary);
      await inStep(primary, replica);
      const stopFollowing = async (): Promise<void> => {
        await query(replica.url, "ALTER SYSTEM SET primary_conninfo = ''");
        await query(replica.url, "SELECT pg_reload_conf()");
        await until(
          "it follows nobody",
          async () => (await query(replica.url, "SELECT 1 FROM pg_stat_wal_receiver")).length === 0,
        );
      };
      const now = async (): Promise<void> => void (await query(replica.url, "SELECT pg_promote(true)"));
      return { spare: serverOf(replica, restartPostgres), promote: { stopFollowing, now } };
    },
  );
}

async function mariadbRig(need: Need): Promise<Rig> {
  let primary: Awaited<ReturnType<typeof startMariadb>> | undefined;
  return singleRig(
    need,
    async (env) => {
      const server = await startMariadb(["--server-id=1", "--log-bin", "--binlog-format=ROW"], env);
      primary ??= server;
      await makeTables(server.url);
      return serverOf(server, restartMariadb);
    },
    async () => {
      if (primary === undefined) throw new Error("no primary");
      const { url } = primary;
      const replica = await startMariadbReplica(primary);
      const place = async (at: string, what: string): Promise<unknown> =>
        (await mariadbQuery(at, `SELECT @@${what} AS place`))[0]?.place;
      const stopFollowing = async (): Promise<void> => {
        await until(
          "the replica is in step",
          async () => (await place(url, "gtid_binlog_pos")) === (await place(replica.url, "gtid_slave_pos")),
        );
        await mariadbQuery(replica.url, "STOP SLAVE");
      };
      return { spare: serverOf(replica, restartMariadb), promote: { stopFollowing, now: async () => {} } };
    },
  );
}

function zooKeeperServer(server: ZooKeeperServer): Server {
  return {
    port: server.port,
    running: () => server.running,
    async restart(wiped = false) {
      if (wiped) rmSync(join(server.running.folder, "data", "version-2"), { recursive: true, force: true });
      await server.restart();
    },
  };
}

/**
 * Three. With a wire from each to each that can be cut only where that is wanted: a wire takes calls for a server that does
 * not listen yet, which sends those who follow a new leader back into another election.
 */
async function zooKeeperCluster(cuttable: boolean): Promise<Rig> {
  const wires: { from: number; to: number; proxy: Proxy }[] = [];
  const ensemble = await startEnsemble({ lines: ["syncLimit=4"] }, async (from, to, port) => {
    if (!cuttable) return port;
    const proxy = await Proxy.to(port);
    wires.push({ from, to, proxy });
    return proxy.port;
  });
  await untilLeader(ensemble);
  return {
    servers: ensemble.servers.map(zooKeeperServer),
    leader: () => untilLeader(ensemble),
    isolate(server) {
      for (const { from, to, proxy } of wires) if (from === server || to === server) proxy.cut();
    },
    rejoin: () => wires.forEach(({ proxy }) => proxy.heal()),
    async stop() {
      await ensemble.stop();
      await Promise.all(wires.map(({ proxy }) => proxy.close()));
    },
  };
}

/** Three, with a gate before each that knows which process calls. */
async function etcdCluster(): Promise<Rig> {
  const gates: Proxy[] = [];
  let members = 0;
  const cluster = await startEtcd(3, [], undefined, async (port) => {
    const place = members++;
    const gate = await Proxy.to(port);
    gates[place] = gate;
    return gate.port;
  });
  const servers = cluster.members.map((member) => ({
    port: member.port,
    running: () => member.running,
    restart: () => restart(member),
  }));
  return {
    servers,
    async leader() {
      let place = -1;
      await until("there is a leader", async () => {
        const leader = await cluster.leader().catch(() => undefined);
        place = leader === undefined ? -1 : cluster.members.indexOf(leader);
        return place >= 0;
      });
      return place;
    },
    isolate(alone) {
      const { pid } = cluster.members[alone]?.running ?? { pid: 0 };
      gates.forEach((gate, n) => (n === alone ? gate.cut() : gate.shutOut((port) => callsFrom(pid, port))));
    },
    rejoin: () => gates.forEach((gate) => gate.heal()),
    async stop() {
      await cluster.stop();
      await Promise.all(gates.map((gate) => gate.close()));
    },
  };
}

async function sqliteRig(need: Need): Promise<Rig> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-lab-"));
  return {
    servers: [],
    file: join(folder, "locks.db"),
    ...(need === "clock" ? { clocks: [movableClock()] } : {}),
    stop: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** Whoever writes to the file keeps everybody else from it, until the result is called. */
export function occupy(file: string): () => void {
  const database = new Database(file);
  database.exec("PRAGMA busy_timeout = 5000; BEGIN IMMEDIATE");
  return () => {
    database.exec("ROLLBACK");
    database.close();
  };
}

const calls = { callTimeoutMs: 4000 };

export const ENGINES: readonly EngineRow[] = [
  {
    name: "sqlite",
    title: "SQLite",
    leaseMs: 1500,
    url: (_, { file }) => `sqlite:${file}`,
    options: () => calls,
    start: sqliteRig,
  },
  {
    name: "redis",
    title: "Redis",
    leaseMs: 1500,
    url: ([port = 0]) => `redis://${host(port)}`,
    options: () => calls,
    start: (need) => redisRig(1, need),
  },
  {
    name: "quorum",
    title: "Redlock (3 Redis)",
    leaseMs: 2000,
    url: (ports) => `redlock://${hosts(ports)}`,
    options: () => ({ ...calls, memberTimeoutMs: 400 }),
    start: (need) => redisRig(3, need),
  },
  {
    name: "postgres",
    title: "PostgreSQL",
    leaseMs: 1500,
    url: ([port = 0]) => `postgres://postgres@${host(port)}/postgres`,
    options: () => calls,
    start: postgresRig,
  },
  {
    name: "mariadb",
    title: "MariaDB",
    leaseMs: 1500,
    url: ([port = 0]) => `mysql://root@${host(port)}`,
    options: () => calls,
    start: mariadbRig,
  },
  {
    name: "zookeeper",
    title: "ZooKeeper",
    leaseMs: 3000,
    url: (ports) => `zookeeper://${hosts(ports)}/locks`,
    options: (leaseMs) => ({ ...calls, sessionTimeoutMs: leaseMs }),
    async start(need) {
      if (need === "cluster" || need === "partition") return zooKeeperCluster(need === "partition");
      const lines = ["maxSessionTimeout=60000"];
      return singleRig(need, async (env) => zooKeeperServer(await startZooKeeper({ env, lines })));
    },
  },
  {
    name: "etcd",
    title: "etcd",
    leaseMs: 3000,
    url: (ports) => `etcd://${hosts(ports)}`,
    options: () => calls,
    async start(need) {
      if (need === "cluster" || need === "partition") return etcdCluster();
      const started: Awaited<ReturnType<typeof startEtcd>>[] = [];
      const rig = await singleRig(need, async () => {
        const cluster = await startEtcd();
        started.push(cluster);
        const [member] = cluster.members;
        if (member === undefined) throw new Error("no member");
        return { port: member.port, running: () => member.running, restart: () => restart(member) };
      });
      const stop = async (): Promise<void> => {
        await rig.stop();
        // Their folders too.
        await Promise.all(started.map((cluster) => cluster.stop()));
      };
      return { ...rig, stop };
    },
  },
];
