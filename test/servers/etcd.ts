import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { get as httpGet } from "node:http";
import { get as httpsGet } from "node:https";
import { join } from "node:path";
import { promisify } from "node:util";
import { programsOf } from "./packages.js";
import { freePorts, quickFolder, Running } from "./process.js";

/** One member: its own process, its own folder, in memory where there is room. */
export type Member = {
  readonly name: string;
  readonly port: number;
  readonly args: readonly string[];
  readonly folder: string;
  readonly secure: boolean;
  running: Running;
};

export type EtcdCluster = {
  readonly url: string;
  readonly members: readonly Member[];
  leader(): Promise<Member>;
  stop(): Promise<void>;
};

/** TLS certificates, as the flags take them. */
export type Certificates = { readonly ca: string; readonly cert: string; readonly key: string };

/** A server alone, or a cluster of as many as are asked for, that elects within a second. `wire`: where the others find a member's port. */
export async function startEtcd(
  count = 1,
  more: readonly string[] = [],
  certificates?: Certificates,
  wire: (port: number) => Promise<number> = async (port) => port,
): Promise<EtcdCluster> {
  const ports = await freePorts(2 * count);
  const names = Array.from({ length: count }, (_, n) => `member${n}`);
  const wired = await Promise.all(names.map((_, n) => wire(ports[2 * n + 1] ?? 0)));
  const peers = names.map((name, n) => `${name}=http://127.0.0.1:${wired[n]}`).join(",");
  const scheme = certificates === undefined ? "http" : "https";
  const tls = certificates === undefined ? [] : ["--cert-file", certificates.cert, "--key-file", certificates.key];
  const started = await Promise.allSettled(
    names.map(async (name, n): Promise<Member> => {
      const [port = 0, peer = 0] = ports.slice(2 * n);
      const args = [
        ...["--name", name, "--log-level", "error", "--initial-cluster", peers, "--initial-cluster-state", "new"],
        ...["--listen-client-urls", `${scheme}://127.0.0.1:${port}`],
        ...["--advertise-client-urls", `${scheme}://127.0.0.1:${port}`],
        ...["--listen-peer-urls", `http://127.0.0.1:${peer}`],
        ...["--initial-advertise-peer-urls", `http://127.0.0.1:${wired[n]}`],
        ...tls,
        ...more,
      ];
      const folder = mkdtempSync(join(quickFolder(), "holdfast-etcd-"));
      const member = { name, port, args, folder, secure: certificates !== undefined };
      try {
        return { ...member, running: await run(member) };
      } catch (error) {
        rmSync(folder, { recursive: true, force: true });
        throw error;
      }
    }),
  );
  const members = started.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  const failed = started.find((one) => one.status === "rejected");
  // Nobody would stop the others.
  if (failed !== undefined) {
    await Promise.all(members.map(end));
    throw failed.reason;
  }
  const cluster: EtcdCluster = {
    url: `${certificates === undefined ? "etcd" : "etcds"}://${members.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    members,
    async leader() {
      const leading = await Promise.all(members.map((member) => isLeader(member)));
      const leader = members[leading.indexOf(true)];
      if (leader === undefined) throw new Error("no leader");
      return leader;
    },
    async stop() {
      await Promise.all(members.map(end));
    },
  };
  return cluster;
}

async function end({ running, folder }: Member): Promise<void> {
  await running.stop();
  rmSync(folder, { recursive: true, force: true });
}

type Place = Omit<Member, "running">;

function run({ port, args, folder, secure }: Place): Promise<Running> {
  return Running.start({
    program: programsOf("etcd").etcd ?? "",
    args: () => ["--data-dir", join(folder, "data"), ...args],
    ready: async () => {
      const health = await ask(`${secure ? "https" : "http"}://127.0.0.1:${port}/health`);
      if (!health.includes('"true"')) throw new Error(`not healthy yet: ${health}`);
    },
  });
}

/** Whoever it says it is: the certificates of tests are made by nobody. */
function ask(url: string): Promise<string> {
  const get = url.startsWith("https:") ? httpsGet : httpGet;
  return new Promise((resolve, reject) => {
    const request = get(url, { rejectUnauthorized: false, timeout: 1000 }, (answer) => {
      let text = "";
      answer.on("data", (data: Buffer) => (text += data.toString()));
      answer.on("end", () => resolve(text));
    });
    request.on("error", reject);
    request.on("timeout", () => request.destroy(new Error(`no answer from ${url}`)));
  });
}

/** The same member again, with the data it had. */
export async function restart(member: Member): Promise<void> {
  member.running = await run(member);
}

async function isLeader({ port, secure }: Place): Promise<boolean> {
  const metrics = await ask(`${secure ? "https" : "http"}://127.0.0.1:${port}/metrics`).catch(() => "");
  return /^etcd_server_is_leader 1$/m.test(metrics);
}

/** What etcd's own client program prints. */
export async function etcdctl(member: Pick<Member, "port">, ...args: readonly string[]): Promise<string> {
  const program = programsOf("etcd").etcdctl ?? "";
  const all = ["--endpoints", `127.0.0.1:${member.port}`, ...args];
  const { stdout } = await promisify(execFile)(program, all, { env: { ...process.env, ETCDCTL_API: "3" } });
  return stdout;
}
