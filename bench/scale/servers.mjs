// One Redis server, or a Cluster of six, seen as one: what they use of processors and memory is added up.
import { Cluster, Redis } from "ioredis";
import { startRedis } from "../lib/redis-server.mjs";
import { freePort } from "../lib/room.mjs";
import { pause } from "../stores/holdfast.mjs";

const SLOTS = 16_384;

export async function startSingle() {
  const server = await startRedis();
  return new Servers([server], server.url, new Redis(server.port));
}

/** Six primaries, each with a sixth of the slots. */
export async function startCluster(count = 6) {
  const buses = [];
  while (buses.length < count) buses.push(await freePort());
  const servers = await Promise.all(
    buses.map((bus) => startRedis(["--cluster-enabled", "yes", "--cluster-port", String(bus)])),
  );
  const nodes = servers.map(({ port }) => new Redis(port));
  for (const [n, node] of nodes.entries()) {
    await node.call("cluster", "set-config-epoch", n + 1);
    const [from, to] = [n, n + 1].map((part) => Math.floor((SLOTS * part) / count));
    await node.call("cluster", "addslotsrange", from, to - 1);
    if (n > 0) await nodes[0].call("cluster", "meet", "127.0.0.1", servers[n].port, buses[n]);
  }
  for (const node of nodes) {
    const agreed = (info) => info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${count}`);
    while (!agreed(await node.call("cluster", "info"))) await pause(50);
    node.disconnect();
  }
  const ports = servers.map(({ port }) => ({ host: "127.0.0.1", port }));
  const url = `redis+cluster://${ports.map(({ host, port }) => `${host}:${port}`).join(",")}`;
  return new Servers(servers, url, new Cluster(ports));
}

class Servers {
  #servers;
  #admins;

  /** `client` reaches every key. */
  constructor(servers, url, client) {
    this.#servers = servers;
    this.#admins = servers.map(({ port }) => new Redis(port));
    this.url = url;
    this.client = client;
  }

  /** The sum over the servers of a figure that INFO shows. */
  async #sum(section, ...names) {
    const infos = await Promise.all(this.#admins.map((admin) => admin.info(section)));
    const figure = (info, name) => Number(new RegExp(`^${name}:([\\d.]+)`, "m").exec(info)[1]);
    return infos.flatMap((info) => names.map((name) => figure(info, name))).reduce((a, b) => a + b, 0);
  }

  async version() {
    return /redis_version:(\S+)/.exec(await this.#admins[0].info("server"))[1];
  }

  async cpuUs() {
    return 1e6 * (await this.#sum("cpu", "used_cpu_user", "used_cpu_sys"));
  }

  /** Of the keys: without the buffers of connections, which come and go. */
  async keyBytes() {
    return (await this.#sum("memory", "used_memory")) - (await this.clientBytes());
  }

  clientBytes() {
    return this.#sum("memory", "mem_clients_normal");
  }

  connections() {
    return this.#sum("clients", "connected_clients");
  }

  async keys() {
    const counts = await Promise.all(this.#admins.map((admin) => admin.dbsize()));
    return counts.reduce((a, b) => a + b, 0);
  }

  /** Calls of scripts since the servers began. */
  async scriptCalls() {
    const infos = await Promise.all(this.#admins.map((admin) => admin.info("commandstats")));
    const calls = infos.flatMap((info) => [...info.matchAll(/cmdstat_eval\w*:calls=(\d+)/g)]);
    return calls.reduce((sum, [, count]) => sum + Number(count), 0);
  }

  async empty() {
    await Promise.all(this.#admins.map((admin) => admin.flushall("SYNC")));
  }

  stop() {
    for (const connection of [this.client, ...this.#admins]) connection.disconnect();
    for (const server of this.#servers) server.stop();
  }
}
