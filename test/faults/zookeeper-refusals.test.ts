import { describe, expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError, isRefusal } from "../../src/core/errors.js";
import { CODE, isRefused, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
import { until } from "../servers/process.js";
import { type Asked, reply, zooKeeperPeer } from "../servers/zookeeper-peer.js";
import { claimOf, engineOn, locksOn, ownServer, rawOn, urlOf } from "./zookeeper-rig.js";

/** What a server will never do is said at once, with advice; what passes is asked for again. */

const SLOW_MS = 60_000;
const CONTAINER = 19;
const AUTH = 100;

const NEVER = [
  "tooLarge",
  "unimplemented",
  "badArguments",
  "noAuth",
  "noChildrenForEphemerals",
  "invalidAcl",
  "authFailed",
  "ephemeralOnLocalSession",
  "sessionClosedRequireAuth",
  "quotaExceeded",
] as const;

const caught = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error);

describe("every code", () => {
  test("refused for good are those that asking again does not help, each with advice; all others pass", () => {
    const refused = Object.entries(CODE).filter(([, code]) => isRefused(new ZooKeeperError(code, "asking")));
    expect(refused.map(([name]) => name)).toEqual([...NEVER, "wentBack"]);
    // A quota that is used up passes for who gives something back, or keeps what it has.
    const held = Object.entries(CODE).filter(([, code]) => isRefused(new ZooKeeperError(code, "asking"), true));
    expect(held.map(([name]) => name)).toEqual([...NEVER.filter((name) => name !== "quotaExceeded"), "wentBack"]);
  });

  for (const name of [
    ...NEVER,
    "throttledOp",
    "notReadOnly",
    "requestTimeout",
    "operationTimeout",
    "sessionMoved",
  ] as const) {
    test(`an answer of ${name} to a claim is ${NEVER.includes(name as never) ? "final" : "not known"}`, async () => {
      const answer = (socket: { write(bytes: Buffer): unknown }, { xid, type }: Asked): boolean =>
        type === CONTAINER && socket.write(reply(xid, 1n, CODE[name])) !== undefined;
      const peer = await zooKeeperPeer({ answer });
      const engine = await engineOn(urlOf(peer.port));
      const error = await caught(engine.claim(claimOf("any")));
      expect(error).toBeInstanceOf(Error);
      expect(isRefusal(error)).toBe(NEVER.includes(name as never));
    });
  }
});

describe("authentication", () => {
  test("a server without the scheme digest: refused when connecting, with advice and without the password", {
    timeout: SLOW_MS,
  }, async () => {
    const server = await ownServer({ properties: { "zookeeper.DigestAuthenticationProvider.enabled": "false" } });
    const error = await caught(connect(`zookeeper://user:secret-word@127.0.0.1:${server.port}/x`));
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect(String(error)).toMatch(/auth failed.*scheme digest/s);
    expect(String(error)).not.toMatch(/secret-word/);
    await (await locksOn(urlOf(server.port))).mutex("m").tryAcquire();
  });

  test("a server that takes digest no more: who is connected is told by a warning, and each call is refused until it does", {
    timeout: SLOW_MS,
  }, async () => {
    let takes = true;
    const peer = await zooKeeperPeer({
      answer(socket, { xid, type }) {
        if (type !== AUTH || takes) return false;
        socket.end(reply(xid, 0n, CODE.authFailed));
        return true;
      },
    });
    const locks = await locksOn(`zookeeper://user:secret-word@127.0.0.1:${peer.port}/x`);
    const warnings: string[] = [];
    locks.on("warning", ({ message }) => warnings.push(message));
    takes = false;
    for (const socket of peer.sockets) socket.destroy();
    // Without a limit of its own: it would be asked for again for ever.
    const error = await caught(locks.mutex("m").acquire());
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect(warnings.join()).toMatch(/refuses this client: auth failed/);
    expect(warnings.join()).not.toMatch(/secret-word/);
    takes = true;
    await until("it serves us again", async () => !isRefusal(await caught(locks.mutex("m").isHeld())));
  });

  test("one server of two that does not take digest: the other serves", { timeout: SLOW_MS }, async () => {
    const refuses = await zooKeeperPeer({
      answer(socket, { xid, type }) {
        if (type !== AUTH) return false;
        socket.end(reply(xid, 0n, CODE.authFailed));
        return true;
      },
    });
    const good = await zooKeeperPeer();
    for (const ports of [
      [refuses.port, good.port],
      [good.port, refuses.port],
    ]) {
      const hosts = ports.map((port) => `127.0.0.1:${port}`).join(",");
      const engine = await openZookeeper(`zookeeper://user:word@${hosts}/x`);
      await engine[Symbol.asyncDispose]();
    }
    expect(good.greetings).toBe(2);
  });

  const DEMANDING = {
    properties: { "zookeeper.enforce.auth.enabled": "true", "zookeeper.enforce.auth.schemes": "digest" },
  };

  test("a server that demands authentication: refused when connecting, with advice", { timeout: SLOW_MS }, async () => {
    const server = await ownServer(DEMANDING);
    const locks = await locksOn(`zookeeper://user:word@127.0.0.1:${server.port}/x`);
    await (await locks.mutex("m").acquire()).release();
    const error = await caught(connect(urlOf(server.port)));
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect(String(error)).toMatch(/authenticate/);
  });
});

test("a quota that is used up refuses claims with advice; who holds is renewed, and what is given back is given back", {
  timeout: SLOW_MS,
}, async () => {
  const server = await ownServer({ properties: { "zookeeper.enforceQuota": "true" } });
  const raw = await rawOn(server.port);
  const locks = await locksOn(urlOf(server.port));
  const engine = await engineOn(urlOf(server.port));
  const hold = await locks.mutex("held").acquire();
  const claim = claimOf("claimed");
  expect((await engine.claim(claim)).kind).toBe("granted");
  const quota = "/zookeeper/quota/locks";
  const nodes = 6; // The base, its layout version, two names, two claims.
  const limits = `count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=${nodes}`;
  await raw.create(quota, Buffer.alloc(0), "persistent");
  await raw.create(`${quota}/zookeeper_limits`, Buffer.from(limits), "persistent");
  await raw.create(`${quota}/zookeeper_stats`, Buffer.from(`count=${nodes},bytes=0`), "persistent");
  const refused = await caught(locks.mutex("more").acquire());
  expect(refused).toBeInstanceOf(EngineRefusedError);
  expect(String(refused)).toMatch(/quota exceeded.*setquota/s);
  expect((await engine.renew([claim]))[0]).toMatchObject({ kind: "granted" });
  // Not settled: it leaves a tombstone, for which there is no room until the claim's own node is gone.
  await until("it is released", async () => {
    const outcome = await caught(engine.release(claim));
    expect(isRefusal(outcome)).toBe(false);
    return typeof outcome === "string";
  });
  await hold.release();
  const { names = [] } = (await raw.children("/locks/claimed")) ?? {};
  expect(names.filter((node) => !node.startsWith("~"))).toEqual([]);
});
