import type { Socket } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { SystemChance, SystemClock } from "../../src/core/clock.js";
import type { ClaimRequest, Engine } from "../../src/core/engine.js";
import { EngineRefusedError } from "../../src/core/errors.js";
import { READERS_MAX } from "../../src/core/limits.js";
import type { ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { CODE, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { stateOf } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";
import { until } from "../servers/process.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";
import { handshake, PING, zooKeeperPeer } from "../servers/zookeeper-peer.js";
import type { World } from "../virtual/lockstep/lockstep.js";
import { SESSION_MS, zookeeperWorld } from "../virtual/lockstep/zookeeper.js";
import { claimOf, listening, wireOn } from "./zookeeper-rig.js";

/** What holds by one condition each, and shows only when the server answers oddly or two clients cross: in virtual time. */

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper({ lines: [`maxSessionTimeout=${SESSION_MS}`] })), 60_000);
afterAll(() => server?.running.stop());

type Through = (one: ZooKeeperDriver) => ZooKeeperDriver;
const plain: Through = (one) => one;
const AUTH = 100;

async function worldOf(...through: readonly Through[]): Promise<{ world: World; engines: Engine[] }> {
  let opened = 0;
  const world = zookeeperWorld(server.port, new SeededChance(1), "curator", (one) => (through[opened++] ?? plain)(one));
  const engines: Engine[] = [];
  for (const _ of through) engines.push(await world.open());
  onTestFinished(async () => {
    for (const engine of engines) await engine[Symbol.asyncDispose]();
  });
  return { world, engines };
}

/** The same client, with another word about how long its session lasts. */
const lasting =
  (sessionTimeoutMs: number): Through =>
  (one) => ({ ...one, sessionTimeoutMs });

test("each connection says first who it is, also the one that resumes a session", async () => {
  const first: number[] = [];
  let greetings = 0;
  const peer = await zooKeeperPeer({
    greet(socket) {
      greetings += 1;
      socket.write(handshake(20_000));
    },
    answer(_socket, { type }) {
      if (first.length < greetings) first.push(type);
      return false;
    },
  });
  const client = new WireClient({
    hosts: [{ host: "127.0.0.1", port: peer.port }],
    sessionTimeoutMs: 20_000,
    tls: undefined,
    auth: { scheme: "digest", secret: "user:password" },
    acl: [],
    clock: new SystemClock(),
    chance: new SystemChance(),
  });
  onTestFinished(() => client.close());
  await client.start(() => {});
  for (const times of [1, 2, 3]) {
    await until("it is connected", async () => (await client.exists("/any").catch(() => false)) === null);
    expect(first, `connection ${times}`).toEqual(Array.from({ length: times }, () => AUTH));
    for (const socket of peer.sockets) socket.destroy();
    await until("it connects again", () => greetings > times);
  }
});

test("a greeting that claims to be larger than any is not waited for", async () => {
  const length = Buffer.alloc(4);
  length.writeInt32BE(5_000, 0);
  const peer = await zooKeeperPeer({ greet: (socket) => void socket.write(length) });
  const client = wireOn(peer.port);
  onTestFinished(() => client.close());
  void client.start(() => {}).catch(() => {});
  await until("it is left for that", () => client.lastCause.message === "a packet of 5000 bytes");
});

/** A client by a clock that is moved, and of the peers at these ports. */
async function clientBy(
  clock: FakeClock,
  ...ports: readonly number[]
): Promise<{ client: WireClient; told: string[] }> {
  const client = new WireClient({
    hosts: ports.map((port) => ({ host: "127.0.0.1", port })),
    sessionTimeoutMs: 3_000,
    tls: undefined,
    auth: undefined,
    acl: [],
    clock,
    chance: new SystemChance(),
  });
  // Its last word would be waited for by the same clock.
  onTestFinished(async () => {
    const closed = client.close();
    await clock.advance(5_000);
    await closed;
  });
  const told: string[] = [];
  void client.start(({ kind }) => void (kind === "warning" || told.push(kind))).catch(() => {});
  return { client, told };
}

test("who listens to a session that is connected is told so at once, and not when it is not", async () => {
  const clock = new FakeClock();
  const peer = await zooKeeperPeer({});
  const { client, told } = await clientBy(clock, peer.port);
  await until("it is connected", () => told.length === 1);
  const listening = (): string[] => {
    const heard: string[] = [];
    void client.start(({ kind }) => void heard.push(kind)).catch(() => {});
    return heard;
  };
  expect(listening()).toEqual(["connected"]);
  for (const socket of peer.sockets) socket.destroy();
  await until("it is disconnected", () => told.length === 2);
  expect(listening()).toEqual([]);
});

test("a server that says nothing is waited for two thirds of the session, and not longer", async () => {
  const clock = new FakeClock();
  // Nor does it answer pings.
  const peer = await zooKeeperPeer({ sessionMs: 1_200, answer: () => true });
  const { told } = await clientBy(clock, peer.port);
  await until("it is connected", () => told.length === 1);
  await clock.advance(790);
  expect(told).toEqual(["connected"]);
  // The second look comes a moment later.
  await clock.advance(10 + 60);
  expect(told).toEqual(["connected", "disconnected"]);
});

test("a ping is sent when nothing else was for a third of the session", async () => {
  const clock = new FakeClock();
  let pings = 0;
  const peer = await zooKeeperPeer({
    sessionMs: 1_200,
    answer: (_socket, { type }) => {
      pings += type === PING ? 1 : 0;
      return false;
    },
  });
  const { client, told } = await clientBy(clock, peer.port);
  await until("it is connected", () => told.length === 1);
  await clock.advance(200);
  expect(await client.exists("/any")).toBeNull();
  await clock.advance(399);
  expect(await client.exists("/any")).toBeNull();
  expect(pings, "it has asked something else").toBe(0);
  await clock.advance(400);
  await until("it is pinged", () => pings === 1);
  expect(told).toEqual(["connected"]);
});

test("servers that do not greet are each waited for a part of the time that the session has", async () => {
  const clock = new FakeClock();
  let mute = false;
  const greet = (socket: Socket): void => void (mute ? null : socket.write(handshake(3_000)));
  const peers = [await zooKeeperPeer({ greet }), await zooKeeperPeer({ greet })] as const;
  const { told } = await clientBy(clock, ...peers.map(({ port }) => port));
  await until("it is connected", () => told.length === 1);
  const greetings = (): number => peers[0].greetings + peers[1].greetings;
  mute = true;
  for (const { sockets } of peers) for (const socket of sockets) socket.destroy();
  await until("it is disconnected", () => told.length === 2);
  await clock.advance(100);
  await until("the first is asked again", () => greetings() === 2);
  await clock.advance(1_500 + 60);
  await until("the other is asked", () => greetings() === 3, 10_000);
});

test("no grant has more time than the session is known to have: neither an answer nor a push", async () => {
  const { world, engines } = await worldOf(plain, lasting(12_000));
  const [near, far] = engines as [Engine, Engine];
  const events = listening(far);
  const alone = claimOf("alone", { leaseMs: 60_000 });
  // Twelve seconds from the last heartbeat that a write proved, three seconds or more before that write: at most nine left.
  await world.time.advance(5_000);
  const answer = await far.claim(alone);
  expect(answer).toMatchObject({ kind: "granted", leftMs: expect.any(Number) });
  expect(answer.kind === "granted" && answer.leftMs).toBeLessThanOrEqual(9_000);
  const [holder, waiter] = [claimOf("two"), claimOf("two", { leaseMs: 60_000 })];
  await near.claim(holder);
  expect((await far.claim(waiter)).kind).toBe("queued");
  const told = (): string[] => events.flatMap((event) => ("id" in event && event.id === waiter.id ? [event.kind] : []));
  await near.release(holder);
  await until("its turn is told", () => told().length > 0);
  // Whoever is pushed a grant counts on ten seconds from its last heartbeat: that is more than is known.
  expect(told()).toEqual(["wake"]);
});

test("a claim that was released by force while it became smaller is gone, although whoever released it did not see its new node", async () => {
  const state = { losesAnswer: false, removing: 0, wait: null as Promise<void> | null };
  const forgetful: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    async transact(operations) {
      await one.transact(operations);
      if (state.losesAnswer) throw new ZooKeeperError(CODE.connectionLoss, "replacing");
    },
  });
  const slow: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    async remove(path, version) {
      state.removing += 1;
      await state.wait;
      return one.remove(path, version);
    },
  });
  const { engines } = await worldOf(forgetful, slow);
  const [owner, other] = engines as [Engine, Engine];
  const writer = claimOf("shrunk", { units: READERS_MAX, capacity: READERS_MAX });
  expect((await owner.claim(writer)).kind).toBe("granted");
  let letGo = (): void => {};
  state.wait = new Promise((resolve) => (letGo = resolve));
  const released = other.release(writer);
  await until("it is about to be removed", () => state.removing > 0);
  state.losesAnswer = true;
  await expect(owner.resize(writer, 1)).rejects.toThrow(/connection loss/);
  letGo();
  await released;
  state.losesAnswer = false;
  expect(await owner.resize(writer, 1)).toBe("gone");
  const next = claimOf("shrunk", { units: READERS_MAX, capacity: READERS_MAX, wait: false });
  expect((await other.claim(next)).kind, "nothing is in the way").toBe("granted");
});

test("a claim whose node somebody removed by hand right before it became smaller is gone, and has no node", async () => {
  const removing: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    async transact(operations) {
      for (const { kind, path } of operations) if (kind === "remove") await one.remove(path);
      return one.transact(operations);
    },
  });
  const { engines } = await worldOf(removing, plain);
  const [owner, other] = engines as [Engine, Engine];
  const writer = claimOf("removed by hand", { units: READERS_MAX, capacity: READERS_MAX });
  expect((await owner.claim(writer)).kind).toBe("granted");
  expect(await owner.resize(writer, 1)).toBe("gone");
  const next = claimOf("removed by hand", { units: READERS_MAX, capacity: READERS_MAX, wait: false });
  expect((await other.claim(next)).kind, "nothing is in the way").toBe("granted");
});

test("pitfall 1: whose own node is not watched yet is not granted by the end of the last one in its way: it may be gone itself", async () => {
  let own = "";
  let asked = 0;
  const deaf: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    // What is asked about the own node is never answered.
    exists: (path, watcher) => {
      if (own === "" || !path.includes(own) || watcher === undefined) return one.exists(path, watcher);
      asked += 1;
      return new Promise(() => {});
    },
  });
  const { engines } = await worldOf(plain, deaf);
  const [near, far] = engines as [Engine, Engine];
  const events = listening(far);
  const [before, holder, waiter] = [claimOf("unwatched"), claimOf("unwatched"), claimOf("unwatched")];
  const ends = async (engine: Engine, { name, id }: ClaimRequest): Promise<void> =>
    expect(await engine.release({ name, id, tombstone: "never" })).toBe("released");
  // A name that it claims again is followed.
  await far.claim(before);
  await ends(far, before);
  own = waiter.id;
  expect((await near.claim(holder)).kind).toBe("granted");
  expect((await far.claim(waiter)).kind).toBe("queued");
  await until("its own node is asked about", () => asked > 0);
  await ends(near, waiter);
  await ends(near, holder);
  await until("it is told", () => events.length > 0);
  expect(events.map(({ kind }) => kind)).not.toContain("granted");
});

test("what a reading fails with that claims share is told to each by an error of its own", async () => {
  let lost = false;
  const losing: Through = (one) => ({
    ...one,
    children: async (...args) => {
      if (lost) throw new ZooKeeperError(CODE.connectionLoss, "reading");
      return one.children(...args);
    },
  });
  const { engines } = await worldOf(losing);
  const [engine] = engines;
  if (engine === undefined) throw new Error("one");
  lost = true;
  const outcomes = await Promise.allSettled([1, 2, 3].map(() => engine.claim(claimOf("read together"))));
  lost = false;
  const errors = outcomes.map((one) => (one.status === "rejected" ? one.reason : one.value));
  expect(errors).toEqual(errors.map(() => new ZooKeeperError(CODE.connectionLoss, "reading")));
  expect(new Set(errors).size).toBe(3);
});

/** A name that was claimed twice before is followed: its queue is known without a reading. */
async function follows(engine: Engine, name: string): Promise<void> {
  for (const claim of [claimOf(name), claimOf(name)]) {
    expect((await engine.claim(claim)).kind).toBe("granted");
    await engine.release({ name, id: claim.id, tombstone: "never" });
  }
}

test("a claim that another client removed before it was watched is not in the way of the next", async () => {
  const { engines } = await worldOf(plain, plain);
  const [near, far] = engines as [Engine, Engine];
  await follows(far, "not watched yet");
  // No time passes: it is watched after a fifth of a second.
  const [first, next] = [claimOf("not watched yet"), claimOf("not watched yet")];
  expect((await far.claim(first)).kind).toBe("granted");
  expect(await near.release({ name: first.name, id: first.id, tombstone: "never" })).toBe("released");
  expect((await far.claim(next)).kind).toBe("granted");
});

test("nobody is refused by a queue that was not read: should the word that somebody left be lost, the server says so", async () => {
  const deafTo = new Set<string>();
  // Its own nodes are watched as the engine believes, and no event of them comes.
  const deaf: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    exists: (path, watcher) => {
      const isOwn = [...deafTo].some((id) => path.includes(id));
      return one.exists(path, isOwn ? undefined : watcher);
    },
  });
  const { world, engines } = await worldOf(plain, deaf);
  const [near, far] = engines as [Engine, Engine];
  for (const over of [{ wait: false }, { capacity: 2 }]) {
    const name = `word lost, ${JSON.stringify(over)}`;
    await follows(far, name);
    const [first, next] = [claimOf(name), claimOf(name, over)];
    deafTo.add(first.id);
    expect((await far.claim(first)).kind).toBe("granted");
    await world.time.advance(250);
    expect(await near.release({ name, id: first.id, tombstone: "never" })).toBe("released");
    expect((await far.claim(next)).kind).toBe("granted");
  }
});

test("what is shown of a name was so at one moment, although its capacity is read after its claims", async () => {
  const state = { meanwhile: async (): Promise<void> => {} };
  const slow: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    async get(path, watcher) {
      if (path.endsWith("/changed twice")) await state.meanwhile();
      return one.get(path, watcher);
    },
  });
  const { engines } = await worldOf(plain, slow);
  const [near, far] = engines as [Engine, Engine];
  const name = "changed twice";
  await near.claim(claimOf(name, { capacity: 2 }));
  expect(await near.setCapacity(name, 2, 3)).toEqual({ kind: "set" });
  state.meanwhile = async () => {
    state.meanwhile = async () => {};
    await near.claim(claimOf(name, { capacity: 3 }));
    expect(await near.setCapacity(name, 3, 4)).toEqual({ kind: "set" });
  };
  const shown = await stateOf(far, name);
  expect([shown?.capacity, shown?.holders.length]).toEqual([4, 2]);
});

test("a capacity that may not be written is refused, and one that somebody else wrote just now is read again", async () => {
  const state = { failure: null as number | null, meanwhile: async (): Promise<void> => {} };
  const odd: Through = (one) => ({
    ...one,
    sessionTimeoutMs: SESSION_MS,
    async set(path, data, version) {
      const { failure, meanwhile } = state;
      [state.failure, state.meanwhile] = [null, async () => {}];
      await meanwhile();
      if (failure !== null) throw new ZooKeeperError(failure, "writing");
      return one.set(path, data, version);
    },
  });
  const { engines } = await worldOf(plain, odd);
  const [near, far] = engines as [Engine, Engine];
  const name = "capacity";
  await near.claim(claimOf(name, { capacity: 2 }));
  state.failure = CODE.noAuth;
  await expect(far.setCapacity(name, 2, 3)).rejects.toBeInstanceOf(EngineRefusedError);
  expect((await stateOf(near, name))?.capacity).toBe(2);
  state.meanwhile = async () => void (await near.setCapacity(name, 2, 5));
  expect(await far.setCapacity(name, 2, 3)).toEqual({ kind: "mismatch", capacity: 5 });
  expect((await stateOf(near, name))?.capacity).toBe(5);
});
