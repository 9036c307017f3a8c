import { writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { programsOf } from "./packages.js";
import { freePorts, Running, until } from "./process.js";

/** Debian's Python with redis-py, to share locks with. */
export const redisPython = (): string => programsOf("redis-py").python3 ?? "";

export type RedisServer = {
  readonly port: number;
  readonly url: string;
  running: Running;
  readonly args: readonly string[];
};

/** One server on a port of its own that keeps nothing, unless told otherwise. */
export async function startRedis(
  args: readonly string[] = [],
  at?: { port: number; folder: string },
  env?: Readonly<Record<string, string>>,
): Promise<RedisServer> {
  const programs = programsOf("Redis");
  const port = at?.port ?? (await freePorts(1))[0] ?? 0;
  const base = ["--port", String(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
  const running = await Running.start({
    program: programs["redis-server"] ?? "",
    args: (folder) => [...base, "--dir", folder, ...args],
    ready: async () => {
      const answer = await command(port, "PING");
      if (!/^\+PONG|^-NOAUTH/.test(answer)) throw new Error(answer);
    },
    ...(at === undefined ? {} : { folder: at.folder }),
    ...(env === undefined ? {} : { env }),
  });
  return { port, url: `redis://127.0.0.1:${port}`, running, args };
}

/** The same server again, on the same port and folder. */
export async function restartRedis(server: RedisServer): Promise<RedisServer> {
  return startRedis(server.args, { port: server.port, folder: server.running.folder });
}

/** One inline command, for tests that look past the engine; the answer as it comes over the wire. */
export function command(port: number, line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.setTimeout(30_000, () => socket.destroy(new Error(`no answer to ${line}`)));
    socket.on("connect", () => socket.write(`${line}\r\n`));
    socket.on("data", (data) => {
      text += data.toString("latin1");
      if (endOf(text, 0) === text.length) socket.end();
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(Buffer.from(text, "latin1").toString()));
  });
}

/** Where the reply that starts at `at` ends; -1 while it is not complete. */
function endOf(text: string, at: number): number {
  const line = text.indexOf("\r\n", at);
  if (line < 0) return -1;
  const count = Number(text.slice(at + 1, line));
  let end = line + 2;
  if (text[at] === "$" && count >= 0) end += count + 2;
  if (text[at] === "*") {
    for (let n = 0; n < count && end >= 0; n += 1) end = endOf(text, end);
  }
  return end > text.length ? -1 : end;
}

/** One that calls the primary at `host port` by the name `main`, and acts after half a second. */
export async function startSentinel(
  primary: string,
  args: readonly string[] = [],
  at?: number,
  quorum = 1,
): Promise<Running> {
  const { "redis-sentinel": program = "" } = programsOf("Redis");
  const port = at ?? (await freePorts(1))[0] ?? 0;
  return Running.start({
    program,
    args: (folder) => {
      const file = join(folder, "sentinel.conf");
      const lines = [
        `port ${port}`,
        "bind 127.0.0.1",
        `dir ${folder}`,
        `sentinel monitor main ${primary} ${quorum}`,
        "sentinel down-after-milliseconds main 500",
        "sentinel failover-timeout main 3000",
      ];
      writeFileSync(file, `${lines.join("\n")}\n`);
      return [file, ...args];
    },
    ready: async () => {
      if (!(await command(port, "PING")).startsWith("+PONG")) throw new Error("not yet");
    },
  });
}

export type SentinelSet = {
  readonly url: string;
  readonly sentinels: readonly { host: string; port: number }[];
  /** The first is the primary at the start. */
  readonly servers: RedisServer[];
  primaryPort(): Promise<number>;
  stop(): Promise<void>;
};

/** A primary with two replicas, and three Sentinels that call it `main` and act after half a second. */
export async function startSentinelSet(): Promise<SentinelSet> {
  const primary = await startRedis(["--repl-diskless-sync-delay", "0"]);
  const replicaArgs = ["--replicaof", "127.0.0.1", String(primary.port), "--repl-diskless-sync-delay", "0"];
  const replicas = await Promise.all([startRedis(replicaArgs), startRedis(replicaArgs)]);
  await until("both replicas are in step", async () => {
    const info = await command(primary.port, "INFO replication");
    return (info.match(/state=online/g) ?? []).length === 2;
  });
  const ports = await freePorts(3);
  const sentinels = await Promise.all(ports.map((port) => startSentinel(`127.0.0.1 ${primary.port}`, [], port, 2)));
  await until("the Sentinels know each other and the replicas", async () => {
    const answers = await Promise.all(ports.map((port) => command(port, "SENTINEL master main")));
    return answers.every((text) => /num-slaves\r\n\$1\r\n2/.test(text) && /num-other-sentinels\r\n\$1\r\n2/.test(text));
  });
  const servers = [primary, ...replicas];
  return {
    url: `redis+sentinel://${ports.map((port) => `127.0.0.1:${port}`).join(",")}/main`,
    sentinels: ports.map((port) => ({ host: "127.0.0.1", port })),
    servers,
    async primaryPort() {
      const [, port] = /\r\n127\.0\.0\.1\r\n\$\d+\r\n(\d+)/.exec(
        await command(ports[0] ?? 0, "SENTINEL get-master-addr-by-name main"),
      ) ?? ["", "0"];
      return Number(port);
    },
    async stop() {
      await Promise.all([...sentinels, ...servers.map((server) => server.running)].map((running) => running.stop()));
    },
  };
}

export type ClusterSet = { readonly url: string; readonly servers: readonly RedisServer[]; stop(): Promise<void> };

const SLOTS = 16_384;

/** Three primaries, each with a third of the slots. With `replica` the first has a fourth server behind it, which takes over when it dies. */
export async function startCluster({ replica = false } = {}): Promise<ClusterSet> {
  const count = replica ? 4 : 3;
  const busPorts = await freePorts(count);
  const servers = await Promise.all(
    busPorts.map((bus) =>
      startRedis([
        ...["--cluster-enabled", "yes", "--cluster-port", String(bus)],
        ...["--cluster-node-timeout", replica ? "1500" : "5000", "--repl-diskless-sync-delay", "0"],
      ]),
    ),
  );
  const first = servers[0]?.port ?? 0;
  for (const [n, server] of servers.entries()) {
    const [from, to] = [Math.floor((SLOTS * n) / 3), Math.floor((SLOTS * (n + 1)) / 3) - 1];
    await command(server.port, `CLUSTER SET-CONFIG-EPOCH ${n + 1}`);
    if (n < 3) await command(server.port, `CLUSTER ADDSLOTSRANGE ${from} ${to}`);
    if (n > 0) await command(first, `CLUSTER MEET 127.0.0.1 ${server.port} ${busPorts[n]}`);
  }
  await until("all nodes agree", async () => {
    const infos = await Promise.all(servers.map((server) => command(server.port, "CLUSTER INFO")));
    return infos.every((info) => info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${count}`));
  });
  if (replica) {
    const [, id] = /\r\n(\w{40})/.exec(await command(first, "CLUSTER MYID")) ?? [];
    await command(servers[3]?.port ?? 0, `CLUSTER REPLICATE ${id}`);
    await until("the replica is in step, and all nodes know", async () => {
      const nodes = await Promise.all(servers.map((server) => command(server.port, "CLUSTER NODES")));
      const online = (await command(first, "INFO replication")).includes("state=online");
      return online && nodes.every((text) => text.includes(`slave ${id}`));
    });
  }
  return {
    url: `redis+cluster://${servers.map((server) => `127.0.0.1:${server.port}`).join(",")}`,
    servers,
    stop: async () => void (await Promise.all(servers.map((server) => server.running.stop()))),
  };
}
