import { describe, expect, test } from "vitest";
import type { Chance } from "../../src/core/clock.js";
import type { Operation, SessionEvent, Watcher, ZooKeeperDriver } from "../../src/engines/zookeeper/driver.js";
import { Hosts } from "../../src/engines/zookeeper/drivers/wire/hosts.js";
import { Framer, Packet, PacketReader } from "../../src/engines/zookeeper/drivers/wire/jute.js";
import * as protocol from "../../src/engines/zookeeper/drivers/wire/protocol.js";
import { Watches, type WatchKind } from "../../src/engines/zookeeper/drivers/wire/watches.js";
import { CODE, ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { Session } from "../../src/engines/zookeeper/session.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

/** The parts of the wire, each against the plainest way to say the same. */

const SEEDS = Array.from({ length: 16 }, (_, seed) => seed + 1);

const int = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(value);
  return bytes;
};
const long = (value: bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(value);
  return bytes;
};
const text = (value: string | Buffer): Buffer => Buffer.concat([int(Buffer.from(value).length), Buffer.from(value)]);
const flag = (value: boolean): Buffer => Buffer.from([value ? 1 : 0]);

describe("numbers, texts and lists", () => {
  test.each(SEEDS)("are written as they are in Java, and read back (seed %i)", (seed) => {
    const chance = new SeededChance(seed);
    const packet = new Packet();
    const parts: Buffer[] = [];
    const reads: ((reader: PacketReader) => void)[] = [];
    for (let left = chance.between(1, 60); left > 0; left -= 1) {
      const what = chance.between(0, 4);
      if (what === 0) {
        const value = chance.between(-(2 ** 31), 2 ** 31 - 1);
        packet.int(value);
        parts.push(int(value));
        reads.push((reader) => expect(reader.int()).toBe(value));
      } else if (what === 1) {
        const value = BigInt.asIntN(
          64,
          (BigInt(chance.between(0, 2 ** 32 - 1)) << 32n) + BigInt(chance.between(0, 2 ** 32 - 1)),
        );
        packet.long(value);
        parts.push(long(value));
        reads.push((reader) => expect(reader.long()).toBe(value));
      } else if (what === 2) {
        const value = chance.chance(0.5);
        packet.flag(value);
        parts.push(flag(value));
        reads.push((reader) => expect(reader.flag()).toBe(value));
      } else if (what === 3) {
        const value = Buffer.alloc(chance.chance(0.2) ? chance.between(200, 2_000) : chance.between(0, 40), seed);
        packet.bytes(value);
        parts.push(text(value));
        reads.push((reader) => expect(reader.bytes()).toEqual(value));
      } else {
        const values = Array.from({ length: chance.between(0, 5) }, () => chance.id().slice(0, chance.between(0, 20)));
        packet.list(values, (value) => packet.text(value));
        parts.push(int(values.length), ...values.map(text));
        reads.push((reader) => expect(reader.list(() => reader.text())).toEqual(values));
      }
    }
    const body = Buffer.concat(parts);
    const written = packet.finish();
    expect(written).toEqual(Buffer.concat([int(body.length), body]));
    const reader = new PacketReader(body);
    for (const read of reads) read(reader);
    expect(reader.left).toBe(0);
    expect(() => reader.flag()).toThrow();
  });

  test("a list may fill a packet to its end, and no more", () => {
    const full = new PacketReader(Buffer.concat([int(2), int(0), int(0)]));
    expect(full.list(() => full.text())).toEqual(["", ""]);
    const short = new PacketReader(Buffer.concat([int(2), int(0), Buffer.alloc(3)]));
    expect(() => short.list(() => "")).toThrow(RangeError);
  });

  test("a node's stat: when it was created and changed, its version, and whose it is", () => {
    const bytes = (czxid: bigint, ephemeralOwner: bigint): Buffer =>
      Buffer.concat([
        ...[long(czxid), long(7n), long(-1n), long(-1n)],
        ...[int(5), int(-1), int(-1), long(ephemeralOwner), int(-1), int(-1), long(-1n)],
      ]);
    const whole = new PacketReader(bytes(6n, -2n));
    expect(whole.stat()).toEqual({ czxid: 6, mzxid: 7, version: 5, ephemeralOwner: "fffffffffffffffe" });
    expect(whole.left).toBe(0);
    expect(new PacketReader(bytes(2n ** 53n - 1n, 0x1abcn)).stat()).toMatchObject({
      ...{ czxid: 2 ** 53 - 1, ephemeralOwner: "1abc" },
    });
    expect(() => new PacketReader(bytes(2n ** 53n, 0n)).stat()).toThrow(/too large/);
  });
});

describe("packets", () => {
  test.each(SEEDS)("come whole, in whatever pieces they arrive (seed %i)", (seed) => {
    const chance = new SeededChance(seed);
    const packets = Array.from({ length: chance.between(1, 20) }, (_, n) =>
      Buffer.alloc(chance.chance(0.5) ? chance.between(1, 6) : chance.between(1, 300), n + 1),
    );
    const wire = Buffer.concat(packets.flatMap((packet) => [int(packet.length), packet]));
    const framer = new Framer();
    const seen: Buffer[] = [];
    for (let at = 0; at < wire.length; ) {
      const next = at + chance.between(0, chance.chance(0.5) ? 5 : 400);
      // A copy: what was handed over is not changed later.
      for (const packet of framer.push(wire.subarray(at, next))) seen.push(Buffer.from(packet));
      at = next;
    }
    expect(seen).toEqual(packets);
  });

  test("as large as the limit are taken, and larger ones are not waited for", () => {
    const framer = new Framer();
    framer.limit = 10;
    expect([...framer.push(Buffer.concat([int(10), Buffer.alloc(10)]))]).toHaveLength(1);
    expect([...framer.push(Buffer.concat([int(1), Buffer.alloc(1)]))]).toHaveLength(1);
    expect(() => [...framer.push(int(11))]).toThrow(RangeError);
    expect(() => [...new Framer().push(int(64 * 1024 * 1024 + 1))]).toThrow(RangeError);
    expect([...new Framer().push(int(64 * 1024 * 1024))]).toEqual([]);
  });
});

describe("requests", () => {
  const acl = [{ perms: 31, scheme: "world", id: "anyone" }];
  const rights = Buffer.concat([int(1), int(31), text("world"), text("anyone")]);
  const data = Buffer.from("data");
  const part = (type: number): Buffer => Buffer.concat([int(type), flag(false), int(-1)]);
  const end = Buffer.concat([int(-1), flag(true), int(-1)]);
  const operations: readonly Operation[] = [
    { kind: "create", path: "/a", data, mode: "ephemeral" },
    { kind: "create", path: "/b", data, mode: "container" },
    { kind: "set", path: "/c", data, version: 3 },
    { kind: "remove", path: "/d", version: 4 },
    { kind: "check", path: "/e", version: 5 },
    { kind: "check", path: "/f" },
  ];
  const cases: readonly (readonly [string, protocol.Request<unknown>, number, Buffer])[] = [
    [
      "create",
      protocol.create("/a", data, "persistent", acl),
      15,
      Buffer.concat([text("/a"), text(data), rights, int(0)]),
    ],
    [
      "ephemeral",
      protocol.create("/a", data, "ephemeral", acl),
      15,
      Buffer.concat([text("/a"), text(data), rights, int(1)]),
    ],
    [
      "sequential",
      protocol.create("/a", data, "ephemeral-sequential", acl),
      15,
      Buffer.concat([text("/a"), text(data), rights, int(3)]),
    ],
    [
      "container",
      protocol.create("/a", data, "container", acl),
      19,
      Buffer.concat([text("/a"), text(data), rights, int(4)]),
    ],
    ["remove", protocol.remove("/a"), 2, Buffer.concat([text("/a"), int(-1)])],
    ["remove a version", protocol.remove("/a", 2), 2, Buffer.concat([text("/a"), int(2)])],
    ["set", protocol.set("/a", data), 5, Buffer.concat([text("/a"), text(data), int(-1)])],
    ["set a version", protocol.set("/a", data, 0), 5, Buffer.concat([text("/a"), text(data), int(0)])],
    ["get", protocol.get("/a", true), 4, Buffer.concat([text("/a"), flag(true)])],
    ["exists", protocol.exists("/a", false), 3, Buffer.concat([text("/a"), flag(false)])],
    ["children", protocol.children("/a", true), 12, Buffer.concat([text("/a"), flag(true)])],
    ["remove the watch of a list", protocol.removeWatches("/a", "children"), 18, Buffer.concat([text("/a"), int(1)])],
    ["remove the watch of a node", protocol.removeWatches("/a", "node"), 18, Buffer.concat([text("/a"), int(2)])],
    [
      "watch again",
      protocol.setWatches(9n, [["/a"], [], ["/b", "/c"]]),
      101,
      Buffer.concat([long(9n), int(1), text("/a"), int(0), int(2), text("/b"), text("/c")]),
    ],
    ["authenticate", protocol.auth("digest", "u:p"), 100, Buffer.concat([int(0), text("digest"), text("u:p")])],
    ["ping", protocol.ping, 11, Buffer.alloc(0)],
    ["close", protocol.close, -11, Buffer.alloc(0)],
    [
      "transaction",
      protocol.multi(operations, acl),
      14,
      Buffer.concat([
        ...[part(15), text("/a"), text(data), rights, int(1), part(19), text("/b"), text(data), rights, int(4)],
        ...[part(5), text("/c"), text(data), int(3), part(2), text("/d"), int(4)],
        ...[part(13), text("/e"), int(5), part(13), text("/f"), int(-1), end],
      ]),
    ],
  ];
  test.each(cases)("are written as a server reads them: %s", (_, request, type, body) => {
    const whole = Buffer.concat([int(77), int(type), body]);
    expect(protocol.requestPacket(77, request)).toEqual(Buffer.concat([int(whole.length), whole]));
  });

  test("a greeting asks for no server that only lets read; its answer names the session", () => {
    const password = Buffer.alloc(16, 3);
    const body = Buffer.concat([int(0), long(5n), int(4_000), long(-7n), text(password), flag(false)]);
    expect(protocol.connectPacket(5n, { timeoutMs: 4_000, sessionId: -7n, password })).toEqual(
      Buffer.concat([int(body.length), body]),
    );
    const answer = Buffer.concat([int(0), int(6_000), long(-8n), text(password), flag(false)]);
    expect(protocol.readHandshake(new PacketReader(answer))).toEqual({ timeoutMs: 6_000, sessionId: -8n, password });
  });

  test("a transaction that failed says so of each part, one that took effect says nothing of interest", () => {
    const read = (...bytes: Buffer[]) => protocol.multi([], []).read(new PacketReader(Buffer.concat(bytes)));
    const failed = (code: number): Buffer => Buffer.concat([int(-1), flag(false), int(code), int(code)]);
    expect(read(failed(0), failed(-101), failed(-2), end)).toEqual([0, -101, -2]);
    expect(read(int(13), flag(false), int(0))).toBeNull();
    expect(read(end)).toEqual([]);
  });
});

test.each(SEEDS)("who watches what is told of it once, and nobody else (seed %i)", (seed) => {
  const chance = new SeededChance(seed);
  const watches = new Watches();
  const KINDS = ["node", "presence", "children"] as const;
  const TOLD: Readonly<Record<number, readonly WatchKind[]>> = {
    ...{ 1: ["node", "presence"], 2: ["node", "presence", "children"], 3: ["node", "presence"], 4: ["children"] },
  };
  let model: { readonly kind: WatchKind; readonly path: string; readonly watcher: Watcher }[] = [];
  const told: (readonly [number, boolean | undefined])[] = [];
  const watchers = [0, 1, 2].map(
    (n): Watcher =>
      (deleted) =>
        void told.push([n, deleted]),
  );
  const one = <T>(list: readonly T[]): T => list[chance.between(0, list.length - 1)] as T;
  for (let n = 0; n < 200; n += 1) {
    const [kind, path, watcher] = [one(KINDS), one(["/a", "/b"]), one(watchers)];
    const same = (each: (typeof model)[number]): boolean =>
      each.kind === kind && each.path === path && each.watcher === watcher;
    const what = chance.between(0, 99);
    if (what < 40) {
      watches.add(kind, path, watcher);
      if (!model.some(same)) model.push({ kind, path, watcher });
    } else if (what < 60) {
      const was = model.some(same);
      model = model.filter((each) => !same(each));
      const isLast = was && !model.some((each) => each.kind === kind && each.path === path);
      expect(watches.remove(kind, path, watcher)).toBe(isLast);
    } else if (what < 75) {
      watches.found(path, watcher);
      const isPresent = (each: (typeof model)[number]): boolean =>
        each.kind === "presence" && each.path === path && each.watcher === watcher;
      if (model.some(isPresent)) {
        model = model.filter((each) => !isPresent(each));
        const node = { kind: "node" as const, path, watcher };
        if (!model.some((each) => each.kind === "node" && each.path === path && each.watcher === watcher))
          model.push(node);
      }
    } else if (what < 98) {
      const type = chance.between(0, 5);
      const hit = model.filter((each) => each.path === path && (TOLD[type] ?? []).includes(each.kind));
      model = model.filter((each) => !hit.includes(each));
      told.length = 0;
      watches.changed(type, path);
      const expected = [...new Set(hit.map((each) => watchers.indexOf(each.watcher)))].map((each) => [
        each,
        type === 2,
      ]);
      const sorted = (list: readonly unknown[]): string[] => list.map((one) => JSON.stringify(one)).toSorted();
      expect(sorted(told)).toEqual(sorted(expected));
    } else {
      watches.clear();
      model = [];
    }
    for (const each of KINDS) {
      const paths = new Set(model.filter((watched) => watched.kind === each).map((watched) => watched.path));
      expect(watches.paths(each).toSorted()).toEqual([...paths].toSorted());
      for (const every of ["/a", "/b"]) expect(watches.has(each, every)).toBe(paths.has(every));
    }
  }
});

describe("which server is tried next, and when", () => {
  const drawing = (...fractions: readonly number[]): Chance => {
    const left = [...fractions];
    return { id: () => "", fraction: () => left.shift() ?? 1 };
  };
  const [a, b, c] = ["a", "b", "c"].map((host) => ({ host, port: 1 })) as [Host, Host, Host];
  type Host = { readonly host: string; readonly port: number };
  const lost = new Error("lost");
  const refused = new ZooKeeperError(CODE.authFailed, "authenticating");

  test("each in turn, in an order that is drawn anew for each round", () => {
    const hosts = new Hosts([a, b, c], drawing(0.1, 0.3, 0.2, 0.9, 0.1, 0.5));
    expect(hosts.count).toBe(3);
    expect([hosts.next(), hosts.next(), hosts.next()]).toEqual([b, c, a]);
    expect([hosts.next(), hosts.next()]).toEqual([a, c]);
    hosts.again(a);
    expect([hosts.next(), hosts.next()]).toEqual([a, b]);
  });

  test("another one at once; when all of them failed, after a time that grows, up to a second", () => {
    const hosts = new Hosts([a, b], drawing());
    const waits = Array.from({ length: 16 }, (_, n) => hosts.failed(n % 2 === 0 ? a : b, lost, false));
    expect(waits[0], "the other one").toBe(0);
    expect(waits[1]).toBeGreaterThan(0);
    for (const [n, ms] of waits.entries()) if (n > 1) expect(ms).toBeGreaterThanOrEqual(waits[n - 1] ?? 0);
    expect(waits.at(-1)).toBe(1_000);
    // It had lasted: that was no failure to connect.
    expect(hosts.failed(a, lost, true)).toBe(0);
    expect(hosts.failed(b, lost, false)).toBe(waits[1]);
    const alone = new Hosts([a], drawing());
    expect(alone.failed(a, lost, true)).toBe(waits[1]);
  });

  test("refused when none serves, and one says that it never will; asked again after seconds, until one is good", () => {
    const hosts = new Hosts([a, b], drawing());
    hosts.failed(a, refused, false);
    expect(hosts.refusal).toBeNull();
    const ms = hosts.failed(b, lost, false);
    expect([hosts.refusal, ms]).toEqual([refused, 5_000]);
    hosts.good();
    expect(hosts.refusal).toBeNull();
    expect(hosts.failed(a, lost, true)).toBe(0);
    expect(hosts.refusal).toBeNull();
    hosts.failed(b, lost, false);
    expect(hosts.refusal, "neither says that it never will").toBeNull();
  });
});

describe("the session's deadline (pitfall 51)", () => {
  const TIMEOUT_MS = 32_000;

  /** Reads and writes that take random times, on connections that come and go; the plain rule beside it. */
  test.each(SEEDS)("counts from what a decided write proves, and hardly sooner (seed %i)", async (seed) => {
    const chance = new SeededChance(seed);
    const clock = new FakeClock();
    let tell: (event: SessionEvent) => void = () => {};
    const client = {
      sessionTimeoutMs: TIMEOUT_MS,
      start: async (listener: typeof tell) => void (tell = listener),
      exists: () => new Promise(() => {}),
      stop: () => {},
      close: async () => {},
    } as unknown as ZooKeeperDriver;
    const handlers = { ended: () => {}, connected: () => {}, warned: () => {} };
    const session = new Session(client, clock, "/base", handlers);
    await session.start();
    let heartbeats: { readonly sentAt: number; readonly answeredAt: number }[] = [];
    let [proven, isConnected, epoch] = [-Infinity, false, 0];
    const connect = (fresh: boolean): void => {
      tell({ kind: "connected", sentAt: clock.now(), fresh });
      [heartbeats, isConnected] = [[{ sentAt: clock.now(), answeredAt: -Infinity }], true];
      epoch += 1;
      if (fresh) proven = clock.now();
    };
    connect(true);
    for (let n = 0; n < 150; n += 1) {
      const what = chance.between(0, 99);
      if (what < 3) {
        tell({ kind: chance.chance(0.5) ? "disconnected" : "ended" });
        // What an ended session was known to have says nothing of the next one.
        if (session.until === -Infinity) proven = -Infinity;
        isConnected = false;
        epoch += 1;
      } else if (what < 8 && !isConnected) connect(proven === -Infinity);
      else {
        const [sentAt, sentIn, ms] = [clock.now(), epoch, chance.between(0, 6) * 500];
        const failure = chance.between(0, 9);
        const error = failure === 0 ? CODE.connectionLoss : failure === 1 ? CODE.noNode : undefined;
        const answer = async (): Promise<void> => {
          await clock.advance(ms);
          if (error !== undefined) throw new ZooKeeperError(error, "asking");
        };
        const isWrite = chance.chance(0.4);
        await (isWrite ? session.write(answer) : session.read(answer)).catch(() => {});
        const isAnswered = error === undefined || (isWrite && error === CODE.noNode);
        if (isAnswered && isConnected && sentIn === epoch) {
          if (isWrite) {
            const known = heartbeats.filter(({ answeredAt }) => answeredAt + TIMEOUT_MS / 4 <= sentAt);
            proven = Math.max(proven, ...known.map((one) => one.sentAt));
          }
          heartbeats.push({ sentAt, answeredAt: clock.now() });
        }
      }
      expect(session.until).toBeLessThanOrEqual(proven + TIMEOUT_MS);
      // Of many in a short time one is kept.
      if (proven !== -Infinity) expect(session.until).toBeGreaterThan(proven + TIMEOUT_MS - TIMEOUT_MS / 32);
      await clock.advance(chance.between(0, 8) * 250);
    }
    await session.close(true);
  });

  test("a heartbeat is sent six times in a session, and none without a connection", async () => {
    const clock = new FakeClock();
    let tell: (event: SessionEvent) => void = () => {};
    const asked: string[] = [];
    const client = {
      sessionTimeoutMs: 6_000,
      start: async (listener: typeof tell) => void (tell = listener),
      exists: async (path: string) => void asked.push(`${path} at ${clock.now()}`),
      stop: () => {},
      close: async () => {},
    } as unknown as ZooKeeperDriver;
    const told: string[] = [];
    const session = new Session(client, clock, "/base", {
      ended: () => void told.push("ended"),
      connected: () => void told.push("connected"),
      warned: (message) => void told.push(message),
    });
    await session.start();
    tell({ kind: "connected", sentAt: 0, fresh: true });
    tell({ kind: "warning", message: "a warning" });
    await clock.advance(2_500);
    expect(asked).toEqual(["/base at 1000", "/base at 2000"]);
    tell({ kind: "disconnected" });
    await clock.advance(5_000);
    tell({ kind: "connected", sentAt: 7_500, fresh: false });
    await clock.advance(1_000);
    expect(asked.slice(2)).toEqual(["/base at 8500"]);
    tell({ kind: "ended" });
    await clock.advance(5_000);
    expect(asked).toHaveLength(3);
    tell({ kind: "connected", sentAt: 0, fresh: true });
    const late: string[] = [];
    session.afterwards(10_000, async () => void late.push("done early"));
    await session.close(false);
    expect([told, late, clock.pending]).toEqual([
      ["connected", "a warning", "connected", "ended", "connected"],
      ["done early"],
      0,
    ]);
    tell({ kind: "ended" });
    session.afterwards(10, async () => void late.push("too late"));
    await clock.advance(20_000);
    expect([told.length, late.length, asked.length], "nothing after it was closed").toEqual([5, 1, 3]);
  });
});
