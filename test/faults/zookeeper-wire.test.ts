import { createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { SystemChance, SystemClock } from "../../src/core/clock.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { Framer, Packet, PacketReader } from "../../src/engines/zookeeper/drivers/wire/jute.js";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
import { until } from "../servers/process.js";
import { zooKeeperPeer } from "../servers/zookeeper-peer.js";

/** Our client against a peer that does what no good server does for long. */

const SESSION_MS = 20_000;
/** What a server accepts unless told otherwise (`jute.maxbuffer`). */
const PACKET_MAX = 0xfffff;

type Peer = { readonly port: number; readonly sizes: number[]; greetings: number; readonly sockets: Set<Socket> };

/** It greets, and answers everything with "no node". */
async function peer(behave: { silent?: boolean; closes?: boolean } = {}): Promise<Peer> {
  const sockets = new Set<Socket>();
  const seen = { sizes: [] as number[], greetings: 0, sockets };
  const server = createServer((socket) => {
    const framer = new Framer();
    let greeted = false;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (piece) => {
      for (const packet of behave.silent === true ? [] : framer.push(piece)) {
        if (greeted) {
          seen.sizes.push(packet.length);
          socket.write(new Packet().int(new PacketReader(packet).int()).long(1n).int(CODE.noNode).finish());
          continue;
        }
        greeted = true;
        seen.greetings += 1;
        socket.write(new Packet().int(0).int(SESSION_MS).long(7n).bytes(Buffer.alloc(16)).flag(false).finish());
        if (behave.closes === true) socket.end();
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return Object.assign(seen, { port: (server.address() as { port: number }).port });
}

function clientOf(...peers: readonly Peer[]): WireClient {
  const client = new WireClient({
    hosts: peers.map(({ port }) => ({ host: "127.0.0.1", port })),
    sessionTimeoutMs: SESSION_MS,
    callTimeoutMs: SESSION_MS,
    tls: undefined,
    auth: undefined,
    acl: [],
    clock: new SystemClock(),
    chance: new SystemChance(),
  });
  onTestFinished(() => client.close());
  return client;
}

test("pitfall 20: servers that greet and hang up are not asked in a loop without a pause", async () => {
  const peers = [await peer({ closes: true }), await peer({ closes: true })];
  await clientOf(...peers).start(() => {});
  const greetings = (): number => peers.reduce((sum, one) => sum + one.greetings, 0);
  await sleep(1500);
  expect(greetings()).toBeLessThan(40);
  await until("it goes on asking", () => greetings() > 1);
});

test("pitfall 39: a server that never answers leaves time to try the others before connecting fails", async () => {
  const [silent, good] = [await peer({ silent: true }), await zooKeeperPeer()];
  const drawn = [0.9, 0.1];
  const chance = { id: () => "", fraction: () => drawn.shift() ?? 0.5 };
  const options = { chance, callTimeoutMs: 4000, sessionTimeoutMs: SESSION_MS };
  const engine = await openZookeeper(`zookeeper://127.0.0.1:${silent.port},127.0.0.1:${good.port}/x`, options);
  await engine[Symbol.asyncDispose]();
});

test("a connection that breaks before the servers could be counted is an error, not a smaller guarantee", async () => {
  const { port } = await peer({ closes: true });
  await expect(openZookeeper(`zookeeper://127.0.0.1:${port}/x`, { callTimeoutMs: 1000 })).rejects.toThrow(
    /connection loss/,
  );
});

test("watches on long paths are set again in packets that a server accepts", async () => {
  const one = await peer();
  const client = clientOf(one);
  let connected = 0;
  await client.start(({ kind }) => void (connected += kind === "connected" ? 1 : 0));
  const paths = Array.from({ length: 600 }, (_, index) => `/${"long".repeat(600)}${index}`);
  await Promise.all(paths.map((path) => client.exists(path, () => {})));
  one.sizes.length = 0;
  for (const socket of one.sockets) socket.destroy();
  await until("it is back", () => connected === 2);
  await client.exists("/last");
  expect(one.sizes.reduce((sum, size) => sum + size, 0)).toBeGreaterThan(600 * 2400);
  expect(Math.max(...one.sizes)).toBeLessThan(PACKET_MAX);
});
