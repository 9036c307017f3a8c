import { randomUUID } from "node:crypto";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";
import { Redis } from "ioredis";
import { PEERS } from "../lib/redis-peers.mjs";
import { startRedis } from "../lib/redis-server.mjs";

export const redis = {
  async start({ counting = false } = {}) {
    const server = await startRedis();
    const { port, url, pid } = server;
    const client = new Redis(port);
    const counter = counting ? await monitor(port) : null;
    return {
      at: { port, url, pid },
      roundTrip: { name: "PING", run: () => client.ping() },
      requests: counter === null ? undefined : () => counter.requests(),
      async stop() {
        client.disconnect();
        counter?.stop();
        server.stop();
      },
    };
  },
  contestants: Object.fromEntries(Object.entries(PEERS).map(([name, open]) => [name, { open }])),
};

/** Counts what clients send; what a script runs inside is its own business. A socket, because MONITOR's lines answer no command. */
export async function monitor(port) {
  const client = new Redis(port);
  const socket = createConnection(port, "127.0.0.1");
  const marks = new Map();
  let count = 0;
  createInterface(socket).on("line", (line) => {
    if (!line.startsWith("+1") || line.includes(" lua] ")) return;
    const mark = [...marks.keys()].find((word) => line.includes(word));
    if (mark) marks.get(mark)();
    else count += 1;
  });
  socket.write("MONITOR\r\n");
  return {
    /** What was sent before has been counted when the mark comes by. */
    async requests() {
      const mark = randomUUID();
      const seen = new Promise((resolve) => marks.set(mark, resolve));
      await client.echo(mark);
      await seen;
      marks.delete(mark);
      return count;
    },
    stop() {
      client.disconnect();
      socket.destroy();
    },
  };
}
