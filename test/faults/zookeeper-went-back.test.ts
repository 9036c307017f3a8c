import { expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError, isRefusal } from "../../src/core/errors.js";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import { until } from "../servers/process.js";
import { handshake, PING, reply, zooKeeperPeer } from "../servers/zookeeper-peer.js";
import { claimOf, engineOn, listening, locksOn, ownServer, proxyTo, rawOn, urlOf, wireOn } from "./zookeeper-rig.js";

/** Servers whose transaction ids are smaller than those that were seen: tokens would come again. */

const SLOW_MS = 60_000;
const EMPTY = Buffer.alloc(0);
const caught = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error);

/** So many transactions, and the number of the last. */
async function write(port: number, path: string, count: number): Promise<number> {
  const raw = await rawOn(port);
  await raw.create(path, EMPTY, "persistent").catch(() => {});
  const stats = await Promise.all(Array.from({ length: count }, () => raw.set(path, EMPTY)));
  return Math.max(...stats.map(({ mzxid }) => mzxid));
}

test("a store that was restored: its holder is told, calls are refused with advice, and no smaller token is given out", {
  timeout: SLOW_MS,
}, async () => {
  const [before, after] = [await ownServer(), await ownServer()];
  const last = await write(before.port, "/some", 500);
  const proxy = await proxyTo(before.port);
  const locks = await locksOn(urlOf(proxy.port), { sessionTimeoutMs: 2000, leaseMs: 2000, callTimeoutMs: 1000 });
  const warnings: string[] = [];
  locks.on("warning", ({ message }) => warnings.push(message));
  const hold = await locks.mutex("m").acquire();
  expect(hold.token).toBeGreaterThan(last);
  proxy.point(after.port);
  // It waits for as long as it takes: whether it is refused is up to the store alone.
  const error = await caught(locks.mutex("m").acquire());
  expect(hold.state).toBe("lost");
  expect(error).toBeInstanceOf(EngineRefusedError);
  expect(String(error)).toMatch(/went back.*tokenBase/s);
  expect(warnings.filter((message) => /went back.*tokenBase/s.test(message))).toHaveLength(1);
  // As it is told to: a client of its own, which adds to every number.
  const base = hold.token;
  const anew = await connect(urlOf(proxy.port), { tokenBase: base });
  onTestFinished(() => anew.close());
  const next = await anew.mutex("m").acquire();
  expect(next.token).toBeGreaterThan(hold.token);
  await next.release();
  // Once its numbers are larger than all that were seen, it serves again.
  await write(after.port, "/some", 600);
  await until("it is served again", async () => !isRefusal(await caught(locks.mutex("m").isHeld())));
  const again = await locks.mutex("m").acquire();
  expect(again.token).toBeGreaterThan(hold.token);
  await again.release();
  expect(warnings.filter((message) => /went back/.test(message))).toHaveLength(1);
});

test("servers that hang up for longer than the session, and are not behind: the session that they kept is resumed", async () => {
  const sessions: bigint[] = [];
  let askedAt = 0;
  let ready = true;
  // As servers without a majority do, which end no session either.
  const peer = await zooKeeperPeer({
    zxid: () => 9n,
    greet(socket, lastZxid, sessionId) {
      sessions.push(sessionId);
      if (sessionId === 0n) askedAt = performance.now();
      if (ready && lastZxid <= 9n)
        socket.write(handshake(1500, sessionId === 0n ? BigInt(sessions.length) : sessionId));
      else socket.destroy();
    },
  });
  const client = wireOn(peer.port);
  onTestFinished(() => client.close());
  const events: string[] = [];
  await client.start((event) => events.push(event.kind === "connected" ? `connected ${event.fresh}` : event.kind));
  const usedAt = performance.now();
  await client.exists("/any");
  ready = false;
  for (const socket of peer.sockets) socket.destroy();
  // A session of its own, which only asks: the one that we have is over by our own clock, and not before.
  await until("they are asked for their newest transaction", () => sessions.slice(1).includes(0n));
  expect(askedAt - usedAt).toBeGreaterThanOrEqual(1499);
  ready = true;
  await until("it is served again", () => events.length === 3);
  expect(events).toEqual(["connected true", "disconnected", "connected false"]);
  expect(sessions.at(-1)).toBe(1n);
  expect(await client.exists("/any")).toBeNull();
});

test("one corrupted transaction id does not lock the client out: only answers that were asked for count, and the next corrects it", async () => {
  const seen: bigint[] = [];
  const huge = 2n ** 45n;
  const peer = await zooKeeperPeer({
    zxid: () => 9n,
    greet(socket, lastZxid) {
      seen.push(lastZxid);
      // As a good server does.
      if (lastZxid > 9n) socket.destroy();
      else socket.write(handshake(3000));
      // Nobody asked for this one, and it says nothing about transactions.
      socket.write(reply(-2, huge, 0));
    },
    answer(socket, { xid, type }, nth) {
      if (type === PING) return socket.write(reply(xid, huge, 0)) !== undefined;
      if (nth === 1) return socket.write(reply(xid, huge, CODE.noNode)) !== undefined;
      return false;
    },
  });
  const client = wireOn(peer.port);
  onTestFinished(() => client.close());
  let connected = 0;
  await client.start(({ kind }) => void (connected += kind === "connected" ? 1 : 0));
  expect(await client.exists("/first")).toBeNull();
  expect(await client.exists("/second")).toBeNull();
  for (const socket of peer.sockets) socket.destroy();
  await until("it is back", () => connected === 2);
  expect(seen).toEqual([0n, 9n]);
});

test("a corrupted id in the last answer of all: the client is told instead of standing still in silence", async () => {
  const huge = 2n ** 45n;
  const peer = await zooKeeperPeer({
    zxid: () => 9n,
    greet: (socket, lastZxid) => void (lastZxid > 9n ? socket.destroy() : socket.write(handshake(1500))),
    answer: (socket, { xid }, nth) => nth === 2 && socket.end(reply(xid, huge, CODE.noNode)) !== undefined,
  });
  const engine = await engineOn(urlOf(peer.port), { sessionTimeoutMs: 1500 });
  const events = listening(engine);
  await caught(engine.claim(claimOf("any")));
  const told = (): boolean => events.some((event) => event.kind === "warning" && /tokenBase/.test(event.message));
  await until("it is told", told, 15_000);
  expect(await caught(engine.claim(claimOf("any")))).toBeInstanceOf(EngineRefusedError);
});

test("an id that no server can have ends the connection", async () => {
  for (const zxid of [-5n, 2n ** 60n]) {
    const peer = await zooKeeperPeer({ zxid: () => zxid });
    const client = wireOn(peer.port);
    onTestFinished(() => client.close());
    await client.start(() => {});
    await expect(client.exists("/x")).rejects.toThrow(/connection loss/);
  }
  const last = wireOn((await zooKeeperPeer({ zxid: () => BigInt(Number.MAX_SAFE_INTEGER) })).port);
  onTestFinished(() => last.close());
  await last.start(() => {});
  expect(await last.exists("/x"), "the largest one that can be a token").toBeNull();
});
