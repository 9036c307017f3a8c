import { createServer, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { LAYOUT_VERSIONS } from "../../src/engine-kit/layout-version.js";
import { Framer, Packet, PacketReader } from "../../src/engines/zookeeper/drivers/wire/jute.js";

/** A request as the peer reads it; the ping's type is 11. */
export type Asked = { readonly xid: number; readonly type: number };

/** What a peer does where a good server would do something else. Left out: it behaves. */
export type Behaviour = {
  readonly sessionMs?: number;
  readonly zxid?: () => bigint;
  /** In place of the answer to the greeting. */
  readonly greet?: (socket: Socket, lastZxid: bigint, sessionId: bigint) => void;
  /** In place of an answer; false for the usual one. */
  readonly answer?: (socket: Socket, asked: Asked, nth: number) => boolean;
};

export type Peer = { readonly port: number; greetings: number; requests: number; readonly sockets: Set<Socket> };

export const PING = 11;
const AUTH = 100;
const MULTI = 14;
const CHECK = 13;
const NO_NODE = -101;
const GET = 4;

/** Whatever is checked is there, and nothing else. */
function usual({ xid, type }: Asked, zxid: bigint): Buffer {
  if (type !== MULTI) return reply(xid, zxid, type === PING || type === AUTH ? 0 : NO_NODE);
  const done = new Packet().int(xid).long(zxid).int(0).int(CHECK).flag(false).int(0);
  return done.int(-1).flag(true).int(-1).finish();
}

/** What every engine reads when it is opened. It is no request that a test would count or answer. */
function layoutVersion(xid: number, zxid: bigint): Buffer {
  const { lowest, highest } = LAYOUT_VERSIONS.zookeeper;
  const node = new Packet().int(xid).long(zxid).int(0).text(`${lowest}-${highest}`);
  // czxid, mzxid, ctime, mtime; version, cversion, aversion; ephemeralOwner; dataLength, numChildren; pzxid
  return node.long(1n).long(1n).long(0n).long(0n).int(0).int(0).int(0).long(0n).int(3).int(0).long(1n).finish();
}

/** The answer to a greeting, as it goes over the wire. */
export function handshake(sessionMs: number, sessionId = 7n): Buffer {
  return new Packet().int(0).int(sessionMs).long(sessionId).bytes(Buffer.alloc(16)).flag(false).finish();
}

export function reply(xid: number, zxid: bigint, code: number): Buffer {
  return new Packet().int(xid).long(zxid).int(code).finish();
}

/** A server that speaks as much of the protocol as a client's start needs, says "no node" to all questions, and can misbehave. */
export async function zooKeeperPeer(behave: Behaviour = {}): Promise<Peer> {
  const sockets = new Set<Socket>();
  const seen = { greetings: 0, requests: 0, sockets };
  const server = createServer((socket) => {
    const framer = new Framer();
    let greeted = false;
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => sockets.delete(socket));
    socket.on("data", (piece) => {
      for (const packet of framer.push(piece)) {
        const reader = new PacketReader(packet);
        if (!greeted) {
          greeted = true;
          seen.greetings += 1;
          reader.int();
          const lastZxid = reader.long();
          reader.int();
          if (behave.greet !== undefined) behave.greet(socket, lastZxid, reader.long());
          else socket.write(handshake(behave.sessionMs ?? 20_000));
          continue;
        }
        const asked = { xid: reader.int(), type: reader.int() };
        if (asked.type === GET && reader.text().endsWith("/~layout-version")) {
          socket.write(layoutVersion(asked.xid, behave.zxid?.() ?? 1n));
          continue;
        }
        if (asked.type !== PING) seen.requests += 1;
        if (behave.answer?.(socket, asked, seen.requests) === true) continue;
        socket.write(usual(asked, behave.zxid?.() ?? 1n));
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
