import { Redis } from "ioredis";
import { QUORUM_PEERS } from "../lib/quorum-peers.mjs";
import { startRedis } from "../lib/redis-server.mjs";
import { monitor } from "./redis.mjs";

const MEMBERS = 5;
const bare = "does not wait";
const not = { "bare commands": { handOver: bare, hot: bare, waiting: bare, crash: bare, heap: bare } };

export const quorum = {
  async start({ counting = false } = {}) {
    const servers = await Promise.all(Array.from({ length: MEMBERS }, () => startRedis()));
    const ports = servers.map(({ port }) => port);
    const client = new Redis(ports[0]);
    const counters = counting ? await Promise.all(ports.map(monitor)) : [];
    const requests = async () => {
      const counts = await Promise.all(counters.map((counter) => counter.requests()));
      return counts.reduce((sum, count) => sum + count, 0);
    };
    return {
      at: { ports, url: `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(",")}` },
      roundTrip: { name: "PING", run: () => client.ping() },
      requests: counting ? requests : undefined,
      stop() {
        client.disconnect();
        for (const counter of counters) counter.stop();
        for (const server of servers) server.stop();
      },
    };
  },
  contestants: Object.fromEntries(
    Object.entries(QUORUM_PEERS).map(([name, open]) => [name, { open, not: not[name] ?? {} }]),
  ),
};
