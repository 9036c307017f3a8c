import { expect, onTestFinished, test } from "vitest";
import type { Engine } from "../../src/core/engine.js";
import type { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { until } from "../servers/process.js";
import type { Proxy } from "../servers/proxy.js";
import { startEnsemble, untilLeader } from "../servers/zookeeper.js";
import { claimOf, engineOn, ownServer, proxyTo, rawOn, urlOf } from "./zookeeper-rig.js";

/**
 * Without room for a tombstone a claim leaves none behind. That no copy of it comes to life later, when somebody has made room, is
 * what the order of a session's requests promises: what was sent earlier is decided earlier, or never.
 */

const SETTING = { properties: { "zookeeper.enforceQuota": "true" } };
const LIMITS = "/zookeeper/quota/locks/zookeeper_limits";
const NAME = "late";
const KEPT = "kept";
/** The base, the folder of the name, and what keeps that there. */
const FULL = 3;
const UNLIMITED = -1;
const SLOW_MS = 120_000;

const limits = (nodes: number): Buffer => Buffer.from(`count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=${nodes}`);

/** The folder of the name is there, and a quota that limits nothing yet. */
async function prepare(raw: WireClient, engine: Engine): Promise<void> {
  const first = claimOf(NAME);
  expect((await engine.claim(first)).kind).toBe("granted");
  // A folder with nothing in it is removed by the server, and its room is free again.
  await raw.create(`/locks/${NAME}/${KEPT}`, Buffer.alloc(0), "ephemeral");
  expect(await engine.release({ ...first, tombstone: "never" })).toBe("released");
  await raw.create("/zookeeper/quota/locks", Buffer.alloc(0), "persistent");
  await raw.create(LIMITS, limits(UNLIMITED), "persistent");
  await raw.create("/zookeeper/quota/locks/zookeeper_stats", Buffer.from(`count=${FULL},bytes=0`), "persistent");
}

const limitTo = (raw: WireClient, nodes: number): Promise<unknown> => raw.set(LIMITS, limits(nodes));
const nodesOf = async (raw: WireClient): Promise<readonly string[]> => {
  // What this server is told it knows from then on all the same: a write comes first.
  await raw.confirm([]);
  return (await raw.children(`/locks/${NAME}`))?.names.filter((name) => name !== KEPT) ?? [];
};
const caught = (promise: Promise<unknown>): Promise<unknown> => promise.catch((error: unknown) => error);

/** A claim is sent, does not arrive, and its connection ends for the client alone. Then it is released by another connection. */
async function releasedWhileUnderWay(engine: Engine, raw: WireClient, wire: Proxy): Promise<void> {
  const claim = claimOf(NAME);
  wire.keepUnderWay();
  const claiming = caught(engine.claim(claim));
  await until("the claim is under way", () => wire.underWay > 0);
  await limitTo(raw, FULL);
  wire.dropClients();
  expect(await claiming).toBeInstanceOf(Error);
  expect(await releasedAtLast(engine, claim)).toBe("gone");
  expect(await raw.exists(`/locks/~tombstones/${NAME}`), "there was no room for one").toBe(null);
  await limitTo(raw, UNLIMITED);
}

async function releasedAtLast(engine: Engine, claim: ReturnType<typeof claimOf>): Promise<unknown> {
  let answer: unknown;
  await until("it is released", async () => typeof (answer = await caught(engine.release(claim))) === "string");
  return answer;
}

test("what is under way arrives: a claim that nobody released is granted when room was made", {
  timeout: SLOW_MS,
}, async () => {
  const server = await ownServer(SETTING);
  const wire = await proxyTo(server.port);
  const [raw, engine] = [await rawOn(server.port), await engineOn(urlOf(wire.port), { sessionTimeoutMs: 30_000 })];
  await prepare(raw, engine);
  wire.keepUnderWay();
  const claiming = engine.claim(claimOf(NAME));
  await until("the claim is under way", () => wire.underWay > 0);
  expect(await wire.arrive()).toEqual(["answered"]);
  expect((await claiming).kind).toBe("granted");
  expect(await nodesOf(raw)).toHaveLength(1);
});

test("pitfall 54: without room for a tombstone, a claim that arrives on a connection which its session has left is not heard", {
  timeout: SLOW_MS,
}, async () => {
  const server = await ownServer(SETTING);
  const wire = await proxyTo(server.port);
  const [raw, engine] = [await rawOn(server.port), await engineOn(urlOf(wire.port), { sessionTimeoutMs: 30_000 })];
  await prepare(raw, engine);
  await releasedWhileUnderWay(engine, raw, wire);
  expect(await wire.arrive(), "the server ends the connection that a session has left").toEqual(["ended"]);
  expect(await nodesOf(raw)).toEqual([]);
  expect((await engine.claim(claimOf(NAME))).kind).toBe("granted");
});

test("pitfall 54: without room for a tombstone, a claim that arrives at a server which its session has left is refused", {
  timeout: SLOW_MS,
}, async () => {
  const ensemble = await startEnsemble(SETTING);
  onTestFinished(() => ensemble.stop());
  const leader = await untilLeader(ensemble);
  const [first = 0, second = 0] = [(leader + 1) % 3, (leader + 2) % 3].map((n) => ensemble.ports[n] ?? 0);
  const [wire, other] = [await proxyTo(first), await proxyTo(second)];
  other.shutOutNew();
  const raw = await rawOn(ensemble.ports[leader] ?? 0);
  const engine = await engineOn(urlOf(wire.port, other.port), { sessionTimeoutMs: 30_000 });
  await prepare(raw, engine);
  wire.shutOutNew();
  other.heal();
  await releasedWhileUnderWay(engine, raw, wire);
  // Its first server asks the leader, who knows that the session went elsewhere: it says so, or ends the connection.
  await wire.arrive();
  expect(await nodesOf(raw)).toEqual([]);
  expect((await engine.claim(claimOf(NAME))).kind).toBe("granted");
});

test("pitfall 54: without room for a tombstone, a claim that arrives together with its release is decided before that", {
  timeout: SLOW_MS,
}, async () => {
  const server = await ownServer(SETTING);
  const wire = await proxyTo(server.port);
  const [raw, engine] = [await rawOn(server.port), await engineOn(urlOf(wire.port), { sessionTimeoutMs: 30_000 })];
  await prepare(raw, engine);
  for (const nodes of [FULL, FULL + 1]) {
    await limitTo(raw, nodes);
    const claim = claimOf(NAME);
    wire.keepUnderWay();
    const claiming = caught(engine.claim(claim));
    await until("the claim is under way", () => wire.underWay > 0);
    // Its caller gave up, and nobody waits for the answer.
    const releasing = releasedAtLast(engine, claim);
    expect(await wire.arrive()).toEqual(["answered"]);
    await Promise.all([claiming, releasing]);
    expect(await nodesOf(raw), `with room for ${nodes - FULL}`).toEqual([]);
  }
});
