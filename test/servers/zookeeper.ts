import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { programsOf } from "./packages.js";
import { freePorts, quickFolder, Running, until } from "./process.js";

/** A server that is starting may take a connection and never answer on it: then another is tried. */
const PROBE_MS = 2_000;

export type ZooKeeperServer = {
  readonly port: number;
  /** Of a server with a key of its own. */
  readonly securePort?: number;
  running: Running;
  /** The same server again, on the same port and folder. */
  restart(): Promise<void>;
};

export type ZooKeeperSetting = {
  /** Half of the shortest session, a twentieth of the longest. */
  readonly tickMs?: number;
  readonly lines?: readonly string[];
  readonly properties?: Readonly<Record<string, string>>;
  readonly securePort?: number;
  readonly folder?: string;
  readonly env?: Readonly<Record<string, string>>;
};

const JARS = "/usr/share/java";

/** Everything in Debian's folder: the server finds what it needs. */
export function javaClasspath(): string {
  return readdirSync(JARS)
    .filter((file) => file.endsWith(".jar") && !/-\d[\w.]*\.jar$/.test(file))
    .map((file) => join(JARS, file))
    .join(":");
}

const java = (): string => programsOf("ZooKeeper").java ?? "";

/** Debian's Python with Kazoo, to share locks with. */
export const kazooPython = (): string => programsOf("Kazoo").python3 ?? "";

/** Curator is nothing but jars. */
export const curatorJava = (): string => programsOf("Curator").java ?? "";

/** One server by itself. */
export async function startZooKeeper(setting: ZooKeeperSetting = {}): Promise<ZooKeeperServer> {
  const [port = 0] = await freePorts(1);
  return startServer(port, [], "", setting);
}

export type Ensemble = {
  readonly servers: readonly ZooKeeperServer[];
  readonly ports: readonly number[];
  /** The place of the leader among the servers. */
  readonly leader: () => Promise<number>;
  readonly stop: () => Promise<void>;
};

/** Where one server finds another's port for those that follow, or for elections: a test can put something in between. */
export type Wire = (from: number, to: number, port: number, use: "follow" | "elect") => Promise<number>;

/** Three that decide together. */
export async function startEnsemble(setting: ZooKeeperSetting = {}, wire?: Wire): Promise<Ensemble> {
  const ports = await freePorts(9);
  const [clients, quorums, elections] = [ports.slice(0, 3), ports.slice(3, 6), ports.slice(6, 9)];
  const servers = await Promise.all(
    clients.map(async (port, me) => {
      const lines = await Promise.all(
        quorums.map(async (quorum, other) => {
          const election = elections[other] ?? 0;
          const own = me === other || wire === undefined;
          const seen = own
            ? [quorum, election]
            : [await wire(me, other, quorum, "follow"), await wire(me, other, election, "elect")];
          return `server.${other + 1}=127.0.0.1:${seen.join(":")}`;
        }),
      );
      return startServer(port, ["initLimit=20", "syncLimit=8", ...lines], String(me + 1), setting);
    }),
  );
  return {
    servers,
    ports: clients,
    async leader() {
      const said = await Promise.all(clients.map((port) => fourLetters(port, "srvr", PROBE_MS).catch(() => "")));
      return said.findIndex((text) => text.includes("Mode: leader"));
    },
    stop: async () => void (await Promise.all(servers.map((server) => server.running.stop()))),
  };
}

async function startServer(
  port: number,
  more: readonly string[],
  id: string,
  { tickMs = 500, lines = [], properties = {}, securePort, folder, env = {} }: ZooKeeperSetting,
): Promise<ZooKeeperServer> {
  const program = java();
  const home = folder ?? mkdtempSync(join(quickFolder(), "holdfast-"));
  mkdirSync(join(home, "data"), { recursive: true });
  if (id !== "") writeFileSync(join(home, "data", "myid"), id);
  const settings = [
    `tickTime=${tickMs}`,
    `dataDir=${join(home, "data")}`,
    `clientPort=${port}`,
    "clientPortAddress=127.0.0.1",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
    "maxClientCnxns=0",
    ...(securePort === undefined ? [] : [`secureClientPort=${securePort}`]),
    ...more,
    ...lines,
  ];
  writeFileSync(join(home, "zoo.cfg"), `${settings.join("\n")}\n`);
  const args = [
    "-Xmx256m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    // Empty folders go soon, so that a test can see it.
    "-Dznode.container.checkIntervalMs=500",
    "-Dzookeeper.electionPortBindRetry=0",
    ...Object.entries(properties).map(([key, value]) => `-D${key}=${value}`),
    "-cp",
    javaClasspath(),
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    join(home, "zoo.cfg"),
  ];
  const start = (): Promise<Running> =>
    Running.start({
      program,
      args: () => args,
      ready: async () => {
        if (!(await fourLetters(port, "srvr", PROBE_MS)).includes("Mode:")) throw new Error("not yet");
      },
      folder: home,
      env,
    });
  const server: ZooKeeperServer = {
    port,
    ...(securePort === undefined ? {} : { securePort }),
    running: await start(),
    async restart() {
      server.running = await start();
    },
  };
  return server;
}

/** ZooKeeper's commands for operators: `srvr`, `wchs`, `wchp`, `mntr`. */
export function fourLetters(port: number, word: string, limitMs = 30_000): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.setTimeout(limitMs, () => socket.destroy(new Error(`no answer to ${word}`)));
    socket.on("connect", () => socket.write(word));
    socket.on("data", (data) => (text += data.toString()));
    socket.on("error", reject);
    socket.on("close", () => resolve(text));
  });
}

export async function untilLeader(ensemble: Ensemble): Promise<number> {
  let place = -1;
  await until("there is a leader", async () => (place = await ensemble.leader()) >= 0, 40_000);
  return place;
}

/** Feeds a file to ZooKeeper's own command line, and answers with what that printed. */
export function zkCli(port: number, file: string): Promise<string> {
  const args = ["-cp", javaClasspath(), "org.apache.zookeeper.ZooKeeperMain", "-server", `127.0.0.1:${port}`];
  return new Promise((resolve, reject) => {
    const child = execFile(java(), args, (error, out, err) => (error === null ? resolve(out + err) : reject(error)));
    child.stdin?.end(readFileSync(file));
  });
}
