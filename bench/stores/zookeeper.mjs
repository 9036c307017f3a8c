import { register } from "node:module";
import { startKazoo, startZooKeeper } from "../lib/zookeeper-server.mjs";
import { holdfast } from "./holdfast.mjs";

// The package does not export its client for ZooKeeper: here it comes from the sources.
register("../../lab/lib/typescript-hooks.mjs", import.meta.url);
const { SystemChance, SystemClock } = await import("../../src/core/clock.js");
const { WireClient } = await import("../../src/engines/zookeeper/drivers/wire/client.js");

const NODE_EXISTS = -110;
const EMPTY = Buffer.alloc(0);

/** A client without an engine. */
export async function wireClient(port) {
  const client = new WireClient({
    hosts: [{ host: "127.0.0.1", port }],
    sessionTimeoutMs: 20_000,
    acl: [{ perms: 31, scheme: "world", id: "anyone" }],
    clock: new SystemClock(),
    chance: new SystemChance(),
  });
  await client.start(() => {});
  return client;
}

/**
 * The lock of many a tutorial: whoever creates the node holds it, everybody else watches it, and all of them come when
 * it goes. One session, as a program has; within it, one watcher each.
 */
const oneNode = {
  async open({ port }) {
    const client = await wireClient(port);
    const unlessThere = (error) => {
      if (error.code !== NODE_EXISTS) throw error;
      return null;
    };
    await client.create("/one-node", EMPTY, "persistent").catch(unlessThere);
    return {
      async take(name) {
        const path = `/one-node/${name}`;
        while ((await client.create(path, EMPTY, "ephemeral").catch(unlessThere)) === null) {
          await new Promise((resolve, reject) => {
            const look = async () => (await client.exists(path, resolve)) === null && resolve();
            look().catch(reject);
          });
        }
        return () => client.remove(path);
      },
      close: () => client.close(),
    };
  },
};

const python = "Python: not measured";

/** Measures itself, by our clock's unit: a call through a pipe would cost more than some of what is measured. */
const kazoo = {
  async open({ port }) {
    const peer = await startKazoo(port);
    const millis = (nanos) => nanos.map((each) => each / 1e6);
    return {
      pairs: async (count) => millis((await peer.ask("pairs", count)).pair),
      handOvers: async (count) => millis((await peer.ask("handOvers", count)).handOver),
      close: () => peer.stop(),
    };
  },
  not: { flight: python, hot: python, waiting: python, crash: python, heap: python },
};

export const zookeeper = {
  async start() {
    const server = await startZooKeeper();
    const client = await wireClient(server.port);
    return {
      at: { url: server.url, port: server.port },
      roundTrip: { name: "exists", run: () => client.exists("/") },
      requests: server.requests,
      messages: server.messages,
      async stop() {
        await client.close();
        server.stop();
      },
    };
  },
  contestants: { holdfast, "one node": oneNode, Kazoo: kazoo },
};
