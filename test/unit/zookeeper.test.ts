import { expect, test } from "vitest";
import { connect } from "../../src/connect.js";
import { InvalidOptionError } from "../../src/core/errors.js";
import { READERS_MAX, TOMBSTONE_MS } from "../../src/core/limits.js";
import type { SessionEvent, Watcher, ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import { Framer, Packet, PacketReader } from "../../src/engines/zookeeper/drivers/wire/jute.js";
import { create } from "../../src/engines/zookeeper/drivers/wire/protocol.js";
import { CODE, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { FollowedQueues } from "../../src/engines/zookeeper/followed.js";
import { guaranteesOf, readVoters } from "../../src/engines/zookeeper/guarantees.js";
import { zookeeperEngine } from "../../src/engines/zookeeper/index.js";
import { entryOf, escaped, nodePrefix, unescaped } from "../../src/engines/zookeeper/node-names.js";
import { Nodes } from "../../src/engines/zookeeper/nodes.js";
import { checkOptions } from "../../src/engines/zookeeper/options.js";
import { Session } from "../../src/engines/zookeeper/session.js";
import { parseZooKeeperUrl } from "../../src/engines/zookeeper/url.js";
import type { QueueEntry } from "../../src/queue/queue.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";

/** `KeeperException.Code` of ZooKeeper 3.8, without what a client says to itself. */
const CODES = {
  ...{ systemError: -1, runtimeInconsistency: -2, dataInconsistency: -3, connectionLoss: -4, tooLarge: -5 },
  ...{ unimplemented: -6, operationTimeout: -7, badArguments: -8, unknownSession: -12, newConfigNoQuorum: -13 },
  ...{ reconfigInProgress: -14, apiError: -100, noNode: -101, noAuth: -102, badVersion: -103 },
  ...{ noChildrenForEphemerals: -108, nodeExists: -110, notEmpty: -111, sessionExpired: -112, invalidCallback: -113 },
  ...{ invalidAcl: -114, authFailed: -115, sessionMoved: -118, notReadOnly: -119, ephemeralOnLocalSession: -120 },
  ...{ noWatcher: -121, requestTimeout: -122, reconfigDisabled: -123, sessionClosedRequireAuth: -124 },
  ...{ quotaExceeded: -125, throttledOp: -127 },
};

test("the codes of errors are ZooKeeper's, and the one of ours is none of them", () => {
  const { wentBack, ...theirs } = CODE;
  expect(theirs).toEqual(CODES);
  expect(Object.values(CODES)).not.toContain(wentBack);
});

const nothing = (): void => {};
const HANDLERS = { ended: nothing, connected: nothing, warned: nothing };

test("pitfall 51: the deadline counts from the last heartbeat but one, and only a confirmed write proves it", async () => {
  const clock = new FakeClock();
  let tell: (event: SessionEvent) => void = () => {};
  const client = {
    sessionTimeoutMs: 20_000,
    start: async (listener: typeof tell) => void (tell = listener),
    exists: async () => null,
    stop: () => {},
    close: async () => {},
  } as unknown as ZooKeeperDriver;
  const session = new Session(client, clock, "/base", HANDLERS);
  await session.start();
  const start = clock.now();
  const read = () => session.read(async () => {});
  const write = () => session.write(async () => {});
  tell({ kind: "connected", sentAt: start, fresh: true });
  expect(session.until - start).toBe(20_000);
  // Too soon after it to prove anything, and reads prove nothing however many there are.
  await clock.advance(1000);
  await write();
  await clock.advance(9000);
  await read();
  expect(session.until - start).toBe(20_000);
  // Proves the heartbeat before the last five seconds, not itself.
  await write();
  const proven = session.until - start;
  expect(proven).toBeGreaterThan(20_000);
  expect(proven).toBeLessThanOrEqual(25_000);
  // Another connection, another server: what was sent before is forgotten. That the session was resumed is for the leader
  // to say, and a write proves that it did; a read does not.
  tell({ kind: "disconnected" });
  await clock.advance(1000);
  const resumed = clock.now();
  tell({ kind: "connected", sentAt: resumed, fresh: false });
  await clock.advance(500);
  await read();
  expect(session.until - start).toBe(proven);
  await write();
  expect(session.until).toBe(resumed + 20_000);
  await clock.advance(500);
  await write();
  expect(session.until).toBe(resumed + 20_000);
  await clock.advance(6000);
  await write();
  expect(session.until).toBeGreaterThan(resumed + 20_000);
  tell({ kind: "ended" });
  expect(session.until).toBe(-Infinity);
  await session.close(true);
});

test("names and node names come back as they went in", () => {
  for (const name of ["a", ".", "..", "a/b", "100%", "~x", "🔒 ä", "\ue000", "%2F"]) {
    expect(unescaped(escaped(name))).toBe(name);
    expect(escaped(name)).not.toMatch(/[/~\ud800-\uf8ff]|^\.\.?$/);
  }
  for (const names of ["curator", "curator-latch", "kazoo"] as const) {
    for (const [units, capacity] of [
      [1, 1],
      [2, 5],
      [1, READERS_MAX],
      [3, READERS_MAX],
      [READERS_MAX, READERS_MAX],
    ] as const) {
      // A program may choose an id that ends as the numbers of units and capacity do.
      for (const id of ["-an_id-1.2-", "order-1.2", "order.1.2", "a-3.4-lock-", "1.2", "-1.2"]) {
        const node = `${nodePrefix(names, id, units, capacity)}0000000042`;
        expect(entryOf(node)).toEqual({ key: node, id, units, capacity, order: 42 });
      }
    }
  }
  // As other libraries write them.
  for (const [key, units, capacity] of [
    ["_c_x-lock-0000000001", 1, 1],
    ["_c_x-latch-0000000001", 1, 1],
    ["_c_x-__READ__0000000001", 1, READERS_MAX],
    ["_c_x-__WRIT__0000000001", READERS_MAX, READERS_MAX],
    ["x__rlock__0000000001", 1, READERS_MAX],
  ] as const) {
    expect(entryOf(key)).toEqual({ key, id: "x", units, capacity, order: 1 });
  }
  expect(entryOf("0123456789abcdef__lock__0000000003")).toMatchObject({ id: null, units: null, order: 3 });
  expect(entryOf("_c_x-lock--2147483648")).toMatchObject({ id: "x", order: -(2 ** 31) });
  expect([entryOf("~x-tombstone"), entryOf("leases")]).toEqual([null, null]);
});

test("URLs: several hosts, a user, a base path; what is wrong is told without the password", () => {
  expect(parseZooKeeperUrl("zookeeper://u:p%3A@a,b:1,[::1]:2/x/y")).toEqual({
    hosts: [
      { host: "a", port: 2181 },
      { host: "b", port: 1 },
      { host: "::1", port: 2 },
    ],
    secure: false,
    digest: "u:p:",
    base: "/x/y",
  });
  for (const plain of ["zookeeper://a", "zookeeper://a/"]) {
    expect(parseZooKeeperUrl(plain)).toEqual({
      ...{ hosts: [{ host: "a", port: 2181 }], secure: false, digest: undefined, base: undefined },
    });
  }
  expect(parseZooKeeperUrl("zookeeper+tls://a").secure).toBe(true);
  for (const wrong of [
    "zookeeper://",
    "zookeeper://secret@a",
    "zookeeper://u:secret@a:x",
    "zookeeper://u:secret%@a?b",
  ]) {
    expect(() => parseZooKeeperUrl(wrong)).toThrow(/Allowed: zookeeper/);
    expect(() => parseZooKeeperUrl(wrong)).not.toThrow(/secret/);
  }
});

test("pitfall 47: a tombstone that could not be removed when its time was over is removed later", async () => {
  const clock = new FakeClock();
  const removals: string[] = [];
  const client = {
    sessionTimeoutMs: 20_000,
    create: async (path: string) => ({ path, czxid: 1 }),
    remove: async (path: string) => {
      removals.push(path);
      if (removals.length === 1) throw new ZooKeeperError(CODE.connectionLoss, "removing");
    },
    stop: () => {},
    close: async () => {},
  } as unknown as ZooKeeperDriver;
  const session = new Session(client, clock, "/base", HANDLERS);
  await new Nodes(session, "/base").bury("name", "id");
  await clock.advance(TOMBSTONE_MS * 3);
  expect(removals).toEqual(["/base/~tombstones/name/id", "/base/~tombstones/name/id"]);
  expect(clock.pending).toBe(0);
  await session.close(true);
});

test("a port that does not exist, and a base path that is none, are refused when they are given", () => {
  for (const port of [0, 65_536, 99_999]) {
    expect(() => parseZooKeeperUrl(`zookeeper://good:2181,bad:${port}`)).toThrow(InvalidOptionError);
  }
  for (const base of ["", "/", "locks", "/a//b", "/a/", "/zookeeper/x"]) {
    expect(() => checkOptions({ base })).toThrow(InvalidOptionError);
  }
});

test("a count or a length that a packet cannot hold is refused before anything is made of it", () => {
  const readerOf = (packet: Packet): PacketReader => new PacketReader(packet.finish().subarray(4));
  const many = readerOf(new Packet().int(33_554_431).text("a"));
  expect(() => many.list(() => 0)).toThrow(RangeError);
  expect(readerOf(new Packet().int(-1).text("a")).list(() => 0)).toEqual([]);
  for (const count of [-2, -33_554_431]) {
    expect(() => readerOf(new Packet().int(count)).list(() => 0)).toThrow(RangeError);
    expect(() => readerOf(new Packet().int(count)).bytes()).toThrow(RangeError);
  }
  expect(
    () => readerOf(new Packet().int(2).text("")).bytes().length + readerOf(new Packet().int(9)).bytes().length,
  ).toThrow(RangeError);
  expect(() => readerOf(new Packet().long(1n).long(1n)).stat()).toThrow(RangeError);
  // All that is needed of it is there, but not all of it.
  expect(() => new PacketReader(Buffer.alloc(67)).stat()).toThrow(RangeError);
  expect(new PacketReader(Buffer.alloc(68)).stat()).toMatchObject({ czxid: 0, version: 0 });
  for (const length of [0, -1, 2 ** 31 - 1]) {
    const bytes = Buffer.alloc(4);
    bytes.writeInt32BE(length);
    expect(() => [...new Framer().push(bytes)]).toThrow(RangeError);
  }
});

test("a container is created by the request that servers have for it, all else by the one that answers with the node", () => {
  const types = (["container", "persistent", "ephemeral"] as const).map(
    (mode) => create("/a", Buffer.alloc(0), mode, []).type,
  );
  expect(types).toEqual([19, 15, 15]);
});

test("a warning from before the engine is there reaches the first listener of the locks", async () => {
  const client = {
    sessionTimeoutMs: 20_000,
    stop: () => {},
    start: async (listener: (event: SessionEvent) => void) => {
      listener({ kind: "connected", sentAt: 0, fresh: true });
      listener({ kind: "warning", message: "told early" });
    },
    get: async () => null,
    create: async () => ({ path: "", czxid: 1 }),
    close: async () => {},
  } as unknown as ZooKeeperDriver;
  await using engine = await zookeeperEngine(client, { clock: new FakeClock() });
  await using locks = await connect(engine);
  const warnings: string[] = [];
  locks.on("warning", ({ message }) => warnings.push(message));
  await Promise.resolve();
  expect(warnings).toEqual(["told early"]);
});

test("pitfall 47: a client leaves a thousand tombstones at most: the oldest goes for one more", async () => {
  const clock = new FakeClock();
  const there = new Set<string>();
  const client = {
    sessionTimeoutMs: 20_000,
    create: async (path: string) => {
      there.add(path);
      return { path, czxid: 1 };
    },
    remove: async (path: string) => void there.delete(path),
    stop: () => {},
    close: async () => {},
  } as unknown as ZooKeeperDriver;
  const session = new Session(client, clock, "/base", HANDLERS);
  const nodes = new Nodes(session, "/base");
  for (let n = 0; n < 1_100; n += 1) await nodes.bury("name", `id${n}`);
  expect(there.size).toBe(1_000);
  expect([there.has("/base/~tombstones/name/id99"), there.has("/base/~tombstones/name/id100")]).toEqual([false, true]);
  await clock.advance(TOMBSTONE_MS);
  expect([there.size, clock.pending]).toEqual([0, 0]);
  await session.close(true);
});

test("a queue is known without reading while our nodes get one number after the other, and all that were there are watched", async () => {
  const watchers = new Map<string, Watcher>();
  const client = {
    sessionTimeoutMs: 20_000,
    exists: async (path: string, watcher: Watcher) => {
      watchers.set(path, watcher);
      return path.includes("~tombstones") ? null : {};
    },
    unwatch: (path: string) => void watchers.delete(path),
  } as unknown as ZooKeeperDriver;
  const session = new Session(client, new FakeClock(), "/base", HANDLERS);
  const watched = new Set<string>();
  const folders = { claims: "/base/n", tombstones: "/base/~tombstones/n" };
  const queues = new FollowedQueues(session, (path) => watched.has(path));
  const entry = (order: number): QueueEntry => ({ key: `k${order}`, order, id: `id${order}`, units: 1, capacity: 1 });
  const isAdded = (order: number): boolean | undefined => queues.get("/base/n")?.add(entry(order));
  const isHeard = (order: number): void => {
    watched.add(`/base/n/k${order}`);
    queues.get("/base/n")?.watch(`k${order}`, true);
  };
  const queue = queues.follow(folders);
  await settle();
  expect([queue.armed, queue.buried, queue.isKnown], "nothing was read yet").toEqual([true, false, false]);
  queue.read([entry(4)], 0);
  expect(queue.isKnown, "nobody would tell that it left").toBe(false);
  queue.read([entry(4)], 0);
  expect(queue.isKnown, "nor when it is read again").toBe(false);
  queue.watch("k4", true);
  queue.read([entry(4)], 0);
  expect(queue.isKnown, "what is watched stays so").toBe(true);
  expect([isAdded(5), queue.entries.map(({ order }) => order)]).toEqual([true, [4, 5]]);
  expect([queue.isKnown, isAdded(6)], "another client may remove ours, which is not watched yet").toEqual([
    false,
    false,
  ]);
  isHeard(5);
  isHeard(6);
  expect([queue.isKnown, isAdded(7)]).toEqual([true, true]);
  isHeard(7);
  watched.delete("/base/n/k5");
  queue.watch("k5", false);
  expect(queue.isKnown, "something happened to it").toBe(false);
  for (const key of ["k4", "k5", "k6", "k7"]) queue.remove(key);
  expect([queue.isKnown, isAdded(9)], "somebody got number 8").toEqual([true, false]);
  // Created while the queue was read: it is there, whether or not it was seen.
  queue.read([entry(8)], 9);
  queue.remove("k8");
  isHeard(9);
  expect([queue.isKnown, queue.entries.map(({ order }) => order)]).toEqual([true, [9]]);
  const { generation } = queue;
  watchers.get("/base/~tombstones/n")?.();
  expect([queue.isKnown, queue.buried, queue.generation > generation]).toEqual([false, true, true]);
  expect([watchers.size, queues.get("/base/n")], "nothing stays watched").toEqual([0, undefined]);
});

test("a queue whose folder is not there, or which the server did not say to watch, is not followed", async () => {
  const folders = { claims: "/base/n", tombstones: "/base/~tombstones/n" };
  for (const isThere of [async () => null, () => Promise.reject(new ZooKeeperError(CODE.connectionLoss, "reading"))]) {
    const client = { exists: isThere, unwatch: nothing } as unknown as ZooKeeperDriver;
    const session = { client, read: (call: (one: ZooKeeperDriver) => unknown) => call(client) } as unknown as Session;
    const queues = new FollowedQueues(session, () => false);
    const queue = queues.follow(folders);
    expect(queue.armed).toBe(true);
    await settle();
    expect([queue.armed, queues.get("/base/n")]).toEqual([false, undefined]);
    // What is told late of one that was forgotten meanwhile says nothing of it.
    const again = queues.follow(folders);
    again.forget();
    await settle();
    expect(queues.get("/base/n")).toBe(again);
  }
});

test("the codes are the server's, and none has two meanings", () => {
  const [passing, answers, refusals] = [
    [-1, -2, -3, -4, -7, -12, -13, -14, -100, -113, -119, -122, -123, -127],
    [-101, -103, -110, -111, -112, -118, -121],
    [-5, -6, -8, -102, -108, -114, -115, -120, -124, -125],
  ];
  const own = Object.values(CODE).filter((code) => code < 0);
  expect(own.toSorted((one, two) => two - one)).toEqual(
    [...passing, ...answers, ...refusals].toSorted((one, two) => two - one),
  );
});

test("three servers that vote decide together; those that only observe, and what cannot be read, do not count", async () => {
  expect([0, 1, 2, 3, 5].map((voters) => guaranteesOf(voters).exclusion)).toEqual([
    ...["single-server", "single-server", "single-server", "consensus", "consensus"],
  ]);
  const votersOf = (get: () => Promise<unknown>): Promise<number> => {
    const client = { get } as unknown as ZooKeeperDriver;
    return readVoters({ read: (call: (one: ZooKeeperDriver) => unknown) => call(client) } as unknown as Session);
  };
  const config = "server.1=a:1:2:participant;3\nserver.2=b:1:2:observer;3\nserver.30=c:1:2\nversion=0";
  expect(await votersOf(async () => ({ data: Buffer.from(config) }))).toBe(2);
  expect(await votersOf(async () => null)).toBe(0);
  expect(await votersOf(() => Promise.reject(new ZooKeeperError(CODE.noAuth, "reading")))).toBe(0);
  await expect(votersOf(() => Promise.reject(new ZooKeeperError(CODE.connectionLoss, "reading")))).rejects.toThrow();
});
