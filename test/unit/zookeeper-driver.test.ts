import type { Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import type { SessionEvent, Watcher } from "../../src/engines/zookeeper/driver.js";
import { WireClient, type WireSettings } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { Connection, type Dial, type Telling } from "../../src/engines/zookeeper/drivers/wire/connection.js";
import * as protocol from "../../src/engines/zookeeper/drivers/wire/protocol.js";
import { CODE, type ZooKeeperError } from "../../src/engines/zookeeper/errors.js";
import { FakeClock, settle } from "../../src/testing/fake-clock.js";
import { DONE, failedBytes, framed, intBytes, Line, statBytes } from "./zookeeper-network.js";

/** When a connection is made, kept, left and made anew: by the fake clock, with what the network does in the test's hand. */

const lines: Line[] = [];
const dial: Dial = (host) => {
  const socket = new Line(host);
  lines.push(socket);
  return { socket: socket as unknown as Socket, ready: "connect" };
};
afterEach(() => void (lines.length = 0));

const line = (n = -1): Line => {
  const one = lines.at(n);
  if (one === undefined) throw new Error("no connection was asked for");
  return one;
};

/** What became of a promise. */
function outcomeOf<T>(promise: Promise<T>): { value?: T; error?: ZooKeeperError } {
  const outcome: { value?: T; error?: ZooKeeperError } = {};
  promise.then(
    (value) => (outcome.value = value),
    (error: ZooKeeperError) => (outcome.error = error),
  );
  return outcome;
}

const eventPacket = (path: string): Buffer =>
  framed(Buffer.concat([intBytes(-1, -1, -1, 0, 3, 3, path.length), Buffer.from(path)]));

const TYPE = { remove: 2, exists: 3, ping: 11, multi: 14, removeWatches: 18, auth: 100, setWatches: 101, close: -11 };
const HOST = { host: "a.example", port: 2181 };
const NOBODY = { timeoutMs: 6_000, sessionId: 0n, password: Buffer.alloc(16) };

describe("one connection", () => {
  function connected(limits = { greetingMs: 4_000, answerMs: 1_000 }, lastZxid = 5n, changed = (): void => {}) {
    const clock = new FakeClock();
    const told: string[] = [];
    const tell: Telling = {
      greeted: ({ timeoutMs, sessionId }) => void told.push(`greeted ${timeoutMs} ${sessionId}`),
      changed: (type, path) => {
        told.push(`changed ${type} ${path}`);
        changed();
      },
      closed: ({ message }) => void told.push(`closed: ${message}`),
    };
    const connection = new Connection(HOST, dial(HOST, undefined), { ...NOBODY, lastZxid }, limits, clock, tell);
    return { clock, told, connection };
  }

  /** With a session of six seconds: a ping after two, silence for four, and at least a second and a half for an answer. */
  function greeted(answerMs = 1_000) {
    const all = connected({ greetingMs: 4_000, answerMs });
    line().accept().greet(6_000);
    return all;
  }

  test("greets when it is made, and not before; what it is answered is told first", () => {
    const { told, connection } = connected();
    expect([line().greeting, line().delays, line().options]).toEqual([null, false, HOST]);
    line().accept();
    expect(line().greeting).toEqual({ lastZxid: 5n, timeoutMs: 6_000, sessionId: 0n });
    line().greet(6_000);
    expect([told, connection.silent, connection.hungUp]).toEqual([["greeted 6000 7"], false, false]);
  });

  test("numbers what it asks, and sends what is asked in one turn in one piece", async () => {
    const { connection } = greeted();
    for (const path of ["/a", "/b", "/c"]) void connection.ask(protocol.exists(path, false));
    await settle();
    expect(line().asked.map(({ xid, type }) => [xid, type])).toEqual([1, 2, 3].map((xid) => [xid, TYPE.exists]));
    expect(line().pieces, "a greeting, and the three").toHaveLength(2);
    void connection.ask(protocol.exists("/d", false));
    await settle();
    expect([line().pieces.length, line().asked.at(-1)?.xid]).toEqual([3, 4]);
  });

  test("the largest number of a request is followed by 1, which is no number of an event", () => {
    expect([0, 1, 2 ** 31 - 2, 2 ** 31 - 1].map(protocol.xidAfter)).toEqual([1, 2, 2 ** 31 - 1, 1]);
  });

  test("what a server would hang up on is refused here, and what it just takes is sent", async () => {
    const { told, connection } = greeted();
    // Length, number, type, a path of two bytes with its length, the length of the data, and the version.
    const roomFor = 0xfffff - (4 + 4 + 4 + 6 + 4 + 4);
    const large = outcomeOf(connection.ask(protocol.set("/a", Buffer.alloc(roomFor + 1))));
    const fits = outcomeOf(connection.ask(protocol.set("/a", Buffer.alloc(roomFor))));
    await settle();
    expect([large.error?.code, fits, line().asked.map(({ xid }) => xid)]).toEqual([CODE.tooLarge, {}, [2]]);
    expect(told).toHaveLength(1);
  });

  test("answers each request by what it asked for: a node, an error, or the codes of a transaction's parts", async () => {
    const { told, connection } = greeted();
    const asks = [
      outcomeOf(connection.ask(protocol.exists("/a", false))),
      outcomeOf(connection.ask(protocol.exists("/b", false))),
      outcomeOf(connection.ask(protocol.multi([{ kind: "check", path: "/c" }], []))),
      outcomeOf(connection.ask(protocol.remove("/d"))),
    ] as const;
    await settle();
    line().answer(10n, 0, statBytes(9n)).answer(11n, CODE.noNode).answer(12n, CODE.noNode, failedBytes(CODE.noNode));
    line().answerTo(-2, 99n).event(3, "/e").answer(13n);
    await settle();
    expect(asks[0].value).toMatchObject({ czxid: 9, version: 0 });
    expect([asks[1].error?.code, asks[1].error?.message]).toEqual([CODE.noNode, "no node while asking for /b"]);
    expect(asks[2].value).toEqual([CODE.noNode]);
    expect(Object.keys(asks[3])).toEqual(["value"]);
    expect(told.slice(1)).toEqual(["changed 3 /e"]);
    expect(connection.lastZxid, "of the last that was asked for, not of a ping or an event").toBe(13n);
  });

  test("an answer that was not asked for, or not yet, ends it", async () => {
    for (const xid of [3, 2, 0]) {
      const { told, connection } = greeted();
      const [one, two] = [connection.ask(protocol.ping), connection.ask(protocol.ping)].map(outcomeOf);
      await settle();
      line().answerTo(xid, 10n);
      await settle();
      expect(told.slice(1)).toEqual([`closed: an answer to nothing that was asked (${xid})`]);
      expect([one?.error?.code, two?.error?.code, line().destroyed]).toEqual([
        ...[CODE.connectionLoss, CODE.connectionLoss, true],
      ]);
    }
  });

  test("takes the newest transaction from answers alone that can be read, and none that cannot be", async () => {
    const { connection } = greeted();
    const ask = (): { error?: ZooKeeperError } => outcomeOf(connection.ask(protocol.ping));
    for (const [zxid, seen] of [
      [0n, 5n],
      [8n, 8n],
      [0n, 8n],
      [7n, 7n],
      [BigInt(Number.MAX_SAFE_INTEGER), BigInt(Number.MAX_SAFE_INTEGER)],
    ] as const) {
      ask();
      await settle();
      line().answer(zxid);
      expect(connection.lastZxid).toBe(seen);
    }
    for (const zxid of [-1n, BigInt(Number.MAX_SAFE_INTEGER) + 1n]) {
      const { connection: other, told } = greeted();
      const asked = outcomeOf(other.ask(protocol.ping));
      await settle();
      line().answer(zxid);
      await settle();
      expect([other.lastZxid, told[1], asked.error?.code]).toEqual([
        ...[5n, `closed: a transaction id of ${zxid}`, CODE.connectionLoss],
      ]);
    }
    const { connection: third, told } = greeted();
    const asked = outcomeOf(third.ask(protocol.exists("/a", false)));
    await settle();
    line().answer(9n, 0, Buffer.alloc(5));
    await settle();
    expect([third.lastZxid, asked.error?.code, told.length]).toEqual([5n, CODE.connectionLoss, 2]);
    expect(asked.error?.cause).toBeInstanceOf(RangeError);
  });

  test("a packet that no server sends ends it: of the greeting much smaller ones", () => {
    const { told } = connected();
    line().accept().send(intBytes(1_025));
    expect(told).toEqual(["closed: a packet of 1025 bytes"]);
    const { told: other } = greeted();
    line().send(intBytes(1_025));
    expect(other).toHaveLength(1);
    line(0).send(intBytes(1)).hangUp();
    expect(told, "once").toHaveLength(1);
    const { told: most } = connected();
    line().accept().send(intBytes(1_024));
    expect(most).toEqual([]);
  });

  test("its end is told once, ends what was asked with its cause, and refuses what is asked later", async () => {
    const { clock, told, connection } = greeted();
    const asked = outcomeOf(connection.ask(protocol.exists("/a", false)));
    await settle();
    line().emit("error", new Error("reset"));
    line().hangUp();
    line().event(3, "/a");
    connection.end(new Error("again"));
    const late = outcomeOf(connection.ask(protocol.exists("/b", false)));
    await settle();
    expect(told.slice(1)).toEqual(["closed: reset"]);
    expect([asked.error?.code, asked.error?.cause]).toEqual([CODE.connectionLoss, new Error("reset")]);
    expect([late.error?.code, late.error?.cause, clock.pending]).toEqual([CODE.connectionLoss, undefined, 0]);
    expect([connection.hungUp, connection.silent]).toEqual([false, false]);
  });

  test("what came in one piece with what ended it is not told", () => {
    const { told, connection } = connected(undefined, undefined, () => connection.end(new Error("enough")));
    line().accept().greet(6_000);
    line().send(Buffer.concat([eventPacket("/a"), eventPacket("/b")]));
    expect(told.slice(1)).toEqual(["changed 3 /a", "closed: enough"]);
    const { told: other } = greeted();
    line().send(Buffer.concat([eventPacket("/a"), intBytes(-5), eventPacket("/b")]));
    expect(other.slice(1)).toEqual(["changed 3 /a", "closed: a packet of -5 bytes"]);
  });

  test("a server that takes the greeting and hangs up did so without a word; one that is silent, or was never reached, did not", async () => {
    const hungUp = connected();
    line().accept().hangUp();
    expect([hungUp.connection.hungUp, hungUp.told]).toEqual([true, ["closed: the server closed the connection"]]);
    const unreached = connected();
    line().hangUp();
    expect(unreached.connection.hungUp).toBe(false);
    const mute = connected();
    line().accept();
    expect(mute.connection.hungUp, "not while it may still answer").toBe(false);
    await mute.clock.advance(4_050);
    expect([mute.connection.hungUp, mute.connection.silent]).toEqual([false, true]);
    const talked = greeted();
    line().hangUp();
    expect(talked.connection.hungUp).toBe(false);
  });

  test("a server that does not greet is waited for as long as it is said, and a moment longer", async () => {
    const { clock, told } = connected({ greetingMs: 3_000, answerMs: 1_000 });
    line().accept();
    await clock.advance(3_049);
    expect(told).toEqual([]);
    await clock.advance(1);
    expect([told, line().destroyed, clock.pending]).toEqual([
      ...[["closed: the server was silent for 3050 ms"], true, 0],
    ]);
  });

  test("pings when nothing was sent for a third of the session, and leaves when nothing was heard for two", async () => {
    const { clock, told, connection } = greeted();
    const pings = (): number => line().asked.filter(({ type }) => type === TYPE.ping).length;
    await clock.advance(1_999);
    expect(pings()).toBe(0);
    await clock.advance(1);
    expect([pings(), line().asked.at(-1)?.xid, connection.usedAt]).toEqual([1, -2, 2_000]);
    await clock.advance(1_000);
    line().answerTo(-2, 9n);
    expect([connection.heardAt, connection.usedAt, connection.lastZxid]).toEqual([3_000, 3_000, 5n]);
    await clock.advance(3_999);
    expect([pings(), told.length]).toEqual([3, 1]);
    // Silent for four seconds: what lies there is read before it counts.
    await clock.advance(50);
    expect(told).toHaveLength(1);
    await clock.advance(1);
    expect([told[1], connection.silent]).toEqual(["closed: the server was silent for 4050 ms", true]);
  });

  test("what came before the second look is heard, and the next silence counts anew", async () => {
    const { clock, told } = greeted();
    await clock.advance(4_010);
    line().answerTo(-2, 0n);
    await clock.advance(100);
    expect(told).toHaveLength(1);
    // From 4010 on, and again with a second look.
    await clock.advance(8_010 + 49 - 4_110);
    expect(told).toHaveLength(1);
    await clock.advance(1);
    expect(told[1]).toBe("closed: the server was silent for 4050 ms");
  });

  test("a request that is left unanswered ends it, although pings are answered: after the time for a call, or a quarter of the session", async () => {
    // [the time for a call, for how long an answer is waited for]
    for (const [answerMs, waitsMs] of [
      [1_000, 1_500],
      [1_499, 1_500],
      [2_500, 2_500],
      [60_000, 4_000],
    ] as const) {
      const { clock, told, connection } = greeted(answerMs);
      await clock.advance(500);
      line().answerTo(-2, 0n);
      const asked = outcomeOf(connection.ask(protocol.exists("/a", false)));
      for (let waited = 0; waited < waitsMs - 100; waited += 100) {
        await clock.advance(100);
        line().answerTo(-2, 0n);
      }
      await clock.advance(99);
      line().answerTo(-2, 0n);
      await clock.advance(50);
      line().answerTo(-2, 0n);
      expect(told, `${answerMs}`).toHaveLength(1);
      await clock.advance(1);
      expect(told[1]).toBe(`closed: the server left a request unanswered for ${waitsMs + 50} ms`);
      expect([asked.error?.code, connection.silent]).toEqual([CODE.connectionLoss, true]);
    }
  });

  test("one answer after the other keeps it, however long the last one waits; the time counts from the last answer", async () => {
    const { clock, told, connection } = greeted();
    for (let n = 0; n < 6; n += 1) void connection.ask(protocol.exists(`/${n}`, false)).catch(() => {});
    for (let n = 0; n < 5; n += 1) {
      await clock.advance(1_400);
      line().asked.splice(
        0,
        line().asked.findIndex(({ type }) => type === TYPE.exists),
      );
      line().answer(9n, CODE.noNode);
    }
    await clock.advance(1_549);
    expect(told).toHaveLength(1);
    await clock.advance(1);
    expect(told[1]).toBe("closed: the server left a request unanswered for 1550 ms");
  });

  test("a request counts from when it was asked, not from the last answer before", async () => {
    const { clock, told, connection } = greeted();
    void connection.ask(protocol.exists("/a", false)).catch(() => {});
    await settle();
    line().answer(9n, CODE.noNode);
    await clock.advance(3_000);
    line().answerTo(-2, 0n);
    void connection.ask(protocol.exists("/b", false)).catch(() => {});
    await clock.advance(1_549);
    expect(told).toHaveLength(1);
    await clock.advance(1);
    expect(told).toHaveLength(2);
  });

  test("a program that stood still reads what lies there before it counts the server as silent", async () => {
    const { clock, told } = greeted();
    clock.stall(60_000);
    await clock.advance(0);
    line().answerTo(-2, 0n);
    await clock.advance(1_000);
    expect(told).toHaveLength(1);
  });

  test("is left with the session that it has, for a cause that stays, whoever hangs up first", async () => {
    const { told, connection } = greeted();
    connection.leave(new Error("not wanted"));
    await settle();
    expect([line().asked.map(({ type }) => type), told.length]).toEqual([[TYPE.close], 1]);
    line().answer(9n);
    await settle();
    expect(told[1]).toBe("closed: not wanted");
    const other = greeted();
    other.connection.leave(new Error("not wanted"));
    await settle();
    line().hangUp();
    await settle();
    expect(other.told.slice(1)).toEqual(["closed: not wanted"]);
    const refused = greeted();
    refused.connection.leave(new Error("not wanted"));
    await settle();
    line().answer(9n, CODE.noAuth);
    await settle();
    expect(refused.told.slice(1)).toEqual(["closed: not wanted"]);
  });
});

const [A, B] = [
  { host: "a.example", port: 1 },
  { host: "b.example", port: 2 },
];
const SESSION_MS = 4_000;

function clientOf(over: Partial<WireSettings> = {}) {
  const clock = new FakeClock();
  const client = new WireClient({
    ...{ hosts: [A], sessionTimeoutMs: 6_000, callTimeoutMs: 1_000, tls: undefined, auth: undefined, acl: [] },
    ...{ clock, chance: { id: () => "", fraction: () => 1 }, dial },
    ...over,
  });
  const told: SessionEvent[] = [];
  const started = outcomeOf(client.start((event) => void told.push(event)));
  const kinds = (): string[] => told.map(({ kind }) => kind);
  return { clock, client, told, kinds, started };
}

/** A client whose session the server calls 11, and of which the newest transaction is 20. */
async function served(over: Partial<WireSettings> = {}) {
  const all = clientOf(over);
  line().accept().greet(SESSION_MS, 11n);
  void all.client.exists("/seen").catch(() => {});
  await settle();
  line().answer(20n, CODE.noNode);
  await settle();
  return all;
}

/** The server hangs up, and the time passes until one is asked again. */
async function hungUp(clock: FakeClock): Promise<void> {
  line().hangUp();
  await askedAgain(clock);
}

async function askedAgain(clock: FakeClock): Promise<void> {
  const before = lines.length;
  for (let ms = 0; lines.length === before && ms < 10_000; ms += 10) await clock.advance(10);
}

const pathsOf = (n = -1): string[] => lines.at(n)?.asked.map(({ rest }) => rest.text()) ?? [];
const typesOf = (): number[] => line().asked.map(({ type }) => type);

describe("one session over many connections", () => {
  test("begins with none, and is resumed at the next server with what it has seen", async () => {
    const { clock, client, told, started } = clientOf({ hosts: [A, B] });
    expect([client.sessionTimeoutMs, client.sessionId, client.lastCause.message]).toEqual([
      ...[0, "0", "no server has answered yet"],
    ]);
    line().accept();
    expect([line().options, line().greeting]).toEqual([B, { lastZxid: 0n, timeoutMs: 6_000, sessionId: 0n }]);
    await clock.advance(5);
    expect([told, started]).toEqual([[], {}]);
    line().greet(SESSION_MS, -2n);
    await settle();
    expect(told).toEqual([{ kind: "connected", sentAt: 0, fresh: true }]);
    expect([client.sessionTimeoutMs, client.sessionId, Object.keys(started)]).toEqual([
      ...[SESSION_MS, "fffffffffffffffe", ["value"]],
    ]);
    const asked = outcomeOf(client.exists("/a"));
    await settle();
    line().answer(20n, CODE.noNode);
    await settle();
    expect(asked).toEqual({ value: null });
    line().hangUp();
    const lost = outcomeOf(client.exists("/a"));
    await settle();
    expect([lost.error?.code, lost.error?.cause]).toEqual([CODE.connectionLoss, client.lastCause]);
    expect([client.lastCause.message, told.at(-1)]).toEqual([
      ...["the server closed the connection", { kind: "disconnected" }],
    ]);
    await clock.advance(0);
    line().accept();
    expect([lines.length, line().options]).toEqual([2, A]);
    expect(line().greeting).toEqual({ lastZxid: 20n, timeoutMs: 6_000, sessionId: -2n });
    await clock.advance(3);
    line().greet(SESSION_MS, -2n);
    expect(told.at(-1)).toEqual({ kind: "connected", sentAt: 5, fresh: false });
  });

  test("what the server says after the connection that knew of it was lost counts by that connection's last answer", async () => {
    const { clock } = await served();
    await hungUp(clock);
    line().accept().greet(SESSION_MS, 11n);
    await hungUp(clock);
    line().accept();
    expect(line().greeting?.lastZxid, "nothing was answered in between").toBe(20n);
  });

  test.each([
    ["a session that lasts no time", 0, 11n],
    ["no session", SESSION_MS, 0n],
  ])(
    "is over when the server greets with %s; the next is begun by what a majority decides",
    async (_, sessionMs, id) => {
      const { clock, kinds, told, client } = await served();
      await hungUp(clock);
      line().accept().greet(sessionMs, id);
      expect(kinds()).toEqual(["connected", "disconnected", "ended"]);
      await askedAgain(clock);
      expect(lines).toHaveLength(3);
      line().accept();
      expect(line().greeting).toEqual({ lastZxid: 0n, timeoutMs: 6_000, sessionId: 0n });
      const at = clock.now();
      line().greet(SESSION_MS, 12n);
      await settle();
      expect([typesOf(), kinds().length, client.lastCause.message]).toEqual([
        ...[[TYPE.multi], 3, "the session ended while there was no connection"],
      ]);
      // As new as what was seen: nothing has happened since.
      line().answer(20n, 0, DONE);
      await settle();
      expect([told.at(-1), client.sessionId]).toEqual([
        { kind: "connected", sentAt: expect.any(Number), fresh: true },
        "c",
      ]);
      expect((told.at(-1) as { sentAt: number }).sentAt).toBeLessThanOrEqual(at);
    },
  );

  test("a comparison that is not answered, or by one who goes on to talk nonsense, begins nothing", async () => {
    const { clock, kinds } = await served();
    await hungUp(clock);
    line().accept().greet(0, 0n);
    await askedAgain(clock);
    line().accept().greet(SESSION_MS, 12n);
    await settle();
    const [asked] = line().asked;
    const head = Buffer.concat([intBytes(asked?.xid ?? 0, 0, 30, 0), DONE]);
    line().send(Buffer.concat([framed(head), intBytes(-1)]));
    await askedAgain(clock);
    expect(kinds()).toEqual(["connected", "disconnected", "ended"]);
    line().accept().greet(SESSION_MS, 13n);
    await settle();
    const before = lines.length;
    line().answer(31n, CODE.systemError);
    await askedAgain(clock);
    expect([kinds().length, lines.length]).toEqual([3, before + 1]);
    line().accept().greet(0, 0n);
    await askedAgain(clock);
    expect(kinds(), "of a session that is none nothing more is told").toHaveLength(3);
  });

  test("servers that went back are refused, told once, and asked again after seconds", async () => {
    const { clock, kinds, told, client } = await served();
    await hungUp(clock);
    line().accept().greet(0, 0n);
    await askedAgain(clock);
    line().accept().greet(SESSION_MS, 12n);
    await settle();
    line().answer(19n, 0, DONE);
    await settle();
    expect(typesOf(), "that session is not wanted").toEqual([TYPE.close]);
    line().answer(19n);
    await settle();
    expect(kinds()).toEqual(["connected", "disconnected", "ended", "warning"]);
    expect((told.at(-1) as { message: string }).message).toMatch(
      /^ZooKeeper refuses this client: went back while .*is 0x13, and 0x14 was seen before\. It was probably restored/,
    );
    const refused = outcomeOf(client.exists("/a"));
    await settle();
    expect(refused.error?.code).toBe(CODE.wentBack);
    const before = lines.length;
    await clock.advance(4_999);
    expect(lines).toHaveLength(before);
    await clock.advance(1);
    expect(lines).toHaveLength(before + 1);
    line().accept().greet(SESSION_MS, 13n);
    await settle();
    line().answer(19n, 0, DONE);
    await settle();
    line().answer(19n);
    await settle();
    expect(
      kinds().filter((kind) => kind === "warning"),
      "once",
    ).toHaveLength(1);
  });

  test("a server that hangs up without a word is compared only when the session is over by our own clock", async () => {
    for (const [overMs, compares] of [
      [SESSION_MS - 1, false],
      [SESSION_MS, true],
    ] as const) {
      const { clock, kinds } = await served();
      await hungUp(clock);
      // A server that is behind what we have seen.
      line().accept();
      expect(line().greeting?.sessionId).toBe(11n);
      line().hangUp();
      clock.stall(overMs - clock.now());
      await clock.advance(0);
      line().accept();
      expect(line().greeting).toMatchObject(
        compares ? { sessionId: 0n, lastZxid: 0n } : { sessionId: 11n, lastZxid: 20n },
      );
      if (!compares) continue;
      line().greet(SESSION_MS, 12n);
      await settle();
      line().answer(21n, 0, DONE);
      await settle();
      line().answer(21n);
      await settle();
      expect([kinds(), kinds().includes("ended")], "it may be resumed").toEqual([["connected", "disconnected"], false]);
      await clock.advance(1_000);
      line().accept();
      expect(line().greeting).toMatchObject({ sessionId: 11n, lastZxid: 20n });
      line().greet(SESSION_MS, 11n);
      expect(kinds().at(-1)).toBe("connected");
    }
  });

  test("servers that went back while the session was kept end it", async () => {
    const { clock, kinds } = await served();
    await hungUp(clock);
    line().accept().hangUp();
    clock.stall(SESSION_MS);
    await clock.advance(0);
    line().accept().greet(SESSION_MS, 12n);
    await settle();
    line().answer(3n, 0, DONE);
    await settle();
    line().answer(3n);
    await settle();
    expect(kinds()).toEqual(["connected", "disconnected", "ended", "warning"]);
  });

  test("a server that cannot be reached is no reason to compare, however long", async () => {
    const { clock } = await served();
    await hungUp(clock);
    for (let n = 0; n < 12; n += 1) await hungUp(clock);
    expect(clock.now()).toBeGreaterThan(SESSION_MS);
    line().accept();
    expect(line().greeting?.sessionId).toBe(11n);
  });

  test("each server is waited for a part of the time that there is: of a call at first, then of what the session has left", async () => {
    const { clock, client } = clientOf({ hosts: [A, B] });
    const waitedFor = async (): Promise<string> => {
      const before = client.lastCause;
      line().accept();
      for (let ms = 0; client.lastCause === before && ms < 10_000; ms += 1) await clock.advance(1);
      return client.lastCause.message;
    };
    const silent = (ms: number): string => `the server was silent for ${Math.ceil(ms) + 50} ms`;
    expect(await waitedFor()).toBe(silent(1_000 / 2));
    await clock.advance(0);
    line().accept().greet(SESSION_MS, 11n);
    const endsAt = clock.now() + SESSION_MS;
    await hungUp(clock);
    for (const share of [0, 1]) {
      const leftMs = endsAt - clock.now();
      expect(leftMs, `${share}`).toBeGreaterThan(SESSION_MS / 3);
      expect(await waitedFor(), "two servers share what is left").toBe(silent(leftMs / 2));
      await askedAgain(clock);
    }
    expect(endsAt - clock.now(), "not less than a third for both, however little is left").toBeLessThan(SESSION_MS / 3);
    expect(await waitedFor()).toBe(silent(SESSION_MS / 3 / 2));
    await askedAgain(clock);
    expect(await waitedFor(), "and in no hurry when it is over").toBe(silent(SESSION_MS / 2));
  });

  test("at the moment at which a session is over there is nothing left to hurry for", async () => {
    const { clock, client } = await served();
    line().hangUp();
    clock.stall(SESSION_MS);
    await clock.advance(0);
    line().accept();
    await clock.advance(SESSION_MS + 49);
    expect(client.lastCause.message).toBe("the server closed the connection");
    await clock.advance(1);
    expect(client.lastCause.message).toBe(`the server was silent for ${SESSION_MS + 50} ms`);
  });

  test("without a time for calls the first connection has the session's", async () => {
    const { clock, client } = clientOf({ callTimeoutMs: Infinity });
    line().accept();
    await clock.advance(6_049);
    expect(client.lastCause.message).toBe("no server has answered yet");
    await clock.advance(1);
    expect(client.lastCause.message).toBe("the server was silent for 6050 ms");
  });

  test("a connection that lasted was a good one: the pauses begin anew, and only then", async () => {
    for (const [lastsMs, pauseMs] of [
      [1_000, 800],
      [1_001, 100],
    ] as const) {
      const { clock } = clientOf();
      for (const ms of [100, 200, 400]) {
        line().hangUp();
        await clock.advance(ms);
      }
      const before = lines.length;
      line().accept().greet(SESSION_MS, 11n);
      await clock.advance(lastsMs);
      line().hangUp();
      await clock.advance(pauseMs - 1);
      expect(lines, `${lastsMs}`).toHaveLength(before);
      await clock.advance(1);
      expect(lines).toHaveLength(before + 1);
    }
  });

  test("a silent connection that served is told, one that hung up or never served is not", async () => {
    const { clock, told, kinds } = await served();
    await clock.advance(3_000);
    expect(kinds()).toEqual(["connected", "disconnected", "warning"]);
    expect((told.at(-1) as { message: string }).message).toBe(
      "ZooKeeper at a.example:1: the server was silent for 2717 ms; the connection is replaced",
    );
    line().accept();
    await clock.advance(5_000);
    await hungUp(clock);
    expect(kinds()).toHaveLength(3);
  });

  const auth = { scheme: "digest", secret: "u:p" };

  test("says who it is before anything else, and is not started before that is taken", async () => {
    const { client, kinds, started } = clientOf({ auth });
    line().accept().greet(SESSION_MS, 11n);
    const asked = outcomeOf(client.exists("/a"));
    await settle();
    expect(line().asked.map(({ xid, type }) => [xid, type])).toEqual([
      [-4, TYPE.auth],
      [1, TYPE.exists],
    ]);
    expect([kinds(), started]).toEqual([["connected"], {}]);
    line().answer(1n).answer(1n, CODE.noNode);
    await settle();
    expect([Object.keys(started), asked]).toEqual([["value"], { value: null }]);
  });

  test("who is refused is told by the error, by a warning and by each call, until a server takes it; and anew the next time", async () => {
    const { clock, client, kinds, started } = clientOf({ auth });
    const refuse = async (): Promise<void> => {
      line().accept().greet(SESSION_MS, 11n);
      await settle();
      line().answer(1n, CODE.authFailed);
      await settle();
    };
    const warnings = (): number => kinds().filter((kind) => kind === "warning").length;
    await refuse();
    const refused = outcomeOf(client.exists("/a"));
    await settle();
    expect([started.error?.code, refused.error?.code, warnings()]).toEqual([CODE.authFailed, CODE.authFailed, 1]);
    await clock.advance(5_000);
    await refuse();
    expect(warnings(), "once").toBe(1);
    await clock.advance(5_000);
    line().accept().greet(SESSION_MS, 11n);
    await settle();
    line().answer(1n);
    await settle();
    await hungUp(clock);
    const lost = outcomeOf(client.exists("/a"));
    await settle();
    expect(lost.error?.code).toBe(CODE.connectionLoss);
    await refuse();
    expect(warnings(), "anew").toBe(2);
  });

  test("says who it is also where it only compares", async () => {
    const { clock } = await (async () => {
      const all = clientOf({ auth });
      line().accept().greet(SESSION_MS, 11n);
      await settle();
      line().answer(20n);
      await settle();
      return all;
    })();
    await hungUp(clock);
    line().accept().greet(0, 0n);
    await askedAgain(clock);
    line().accept().greet(SESSION_MS, 12n);
    await settle();
    expect(typesOf()).toEqual([TYPE.auth, TYPE.multi]);
  });

  test("is ended by its last word, or without an answer after two seconds, and not begun again", async () => {
    const { clock, client, kinds } = await served();
    const closed = outcomeOf(client.close());
    const again = outcomeOf(client.close());
    await settle();
    expect([typesOf(), Object.keys(closed), Object.keys(again)]).toEqual([[TYPE.close], [], ["value"]]);
    line().answer(21n);
    await settle();
    expect([Object.keys(closed), line().destroyed, kinds().at(-1), clock.pending]).toEqual([
      ...[["value"], true, "disconnected", 0],
    ]);
    const { clock: other, client: deaf } = await served({ callTimeoutMs: Infinity });
    const late = outcomeOf(deaf.close());
    await other.advance(1_999);
    expect([Object.keys(late), line().destroyed]).toEqual([[], false]);
    await other.advance(1);
    expect([Object.keys(late), line().destroyed, other.pending]).toEqual([["value"], true, 0]);
    expect(lines).toHaveLength(2);
  });

  test("is ended also while there is no connection, or none yet", async () => {
    const { clock, client } = await served();
    line().hangUp();
    await client.close();
    await clock.advance(60_000);
    expect([lines.length, clock.pending]).toEqual([1, 0]);
    const { clock: other, client: young } = clientOf();
    await young.close();
    expect([line().destroyed, other.pending]).toEqual([true, 0]);
    await other.advance(60_000);
    expect(lines).toHaveLength(2);
  });
});

describe("what is asked and watched", () => {
  const watcherOf =
    (heard: (boolean | undefined)[]): Watcher =>
    (deleted) =>
      void heard.push(deleted);

  /** Answers what was asked last: null for a node that is not there. */
  async function answered<T>(asked: Promise<T>, code: number = 0, body: Buffer = Buffer.alloc(0)): Promise<T> {
    await settle();
    line().answer(21n, code, body);
    return asked;
  }

  const NODE = Buffer.concat([intBytes(0), statBytes()]);

  test("who listens later is told of the connection that there is, and who stops is told no more", async () => {
    const { client, kinds } = await served();
    const heard: string[] = [];
    const listener = ({ kind }: SessionEvent): void => void heard.push(kind);
    await client.start(listener);
    expect([heard, kinds(), lines.length]).toEqual([["connected"], ["connected"], 1]);
    client.stop(listener);
    line().hangUp();
    expect([heard, kinds()]).toEqual([["connected"], ["connected", "disconnected"]]);
    void client.start(listener);
    expect(heard, "there is none").toEqual(["connected"]);
  });

  test("a warning leaves the connection what it is", async () => {
    const { clock, client, kinds } = await served({ hosts: [A, B] });
    await clock.advance(2_800);
    expect(kinds()).toEqual(["connected", "disconnected", "warning"]);
    const heard: string[] = [];
    void client.start(({ kind }) => void heard.push(kind));
    expect(heard).toEqual([]);
  });

  test("a node that is not there is watched only by whoever asked for its presence", async () => {
    const { client } = await served();
    const heard: (boolean | undefined)[][] = [[], [], []];
    const [node, presence, children] = heard.map(watcherOf) as [Watcher, Watcher, Watcher];
    expect(await answered(client.get("/n", node), CODE.noNode)).toBeNull();
    expect(await answered(client.exists("/n", presence), CODE.noNode)).toBeNull();
    expect(await answered(client.children("/n", children), CODE.noNode)).toBeNull();
    line().event(1, "/n").event(2, "/n").event(4, "/n");
    expect(heard).toEqual([[], [false], []]);
  });

  test("what is there is watched by all who asked, once; and whoever was not answered watches nothing", async () => {
    const { client } = await served();
    const heard: (boolean | undefined)[][] = [[], [], []];
    const [node, presence, children] = heard.map(watcherOf) as [Watcher, Watcher, Watcher];
    await answered(client.get("/n", node), 0, NODE);
    await answered(client.exists("/n", presence), 0, statBytes());
    await answered(client.children("/n", children), 0, NODE);
    line().event(2, "/n").event(2, "/n");
    expect(heard).toEqual([[true], [true], [true]]);
    for (const ask of [
      (): Promise<unknown> => client.get("/m", node),
      () => client.exists("/m", presence),
      () => client.children("/m", children),
    ])
      await expect(answered(ask(), CODE.noAuth)).rejects.toMatchObject({ code: CODE.noAuth });
    line().event(1, "/m").event(2, "/m").event(4, "/m");
    expect(heard).toEqual([[true], [true], [true]]);
  });

  test("what nobody watches any more the server is told to forget: of a node and its presence at once", async () => {
    const { client } = await served();
    const heard: (boolean | undefined)[] = [];
    const [one, two, three] = [watcherOf(heard), watcherOf(heard), watcherOf(heard)] as const;
    await answered(client.get("/n", one), 0, NODE);
    await answered(client.get("/n", two), 0, NODE);
    await answered(client.exists("/n", three), CODE.noNode);
    await answered(client.children("/n", one), 0, NODE);
    const forgets = async (watcher: Watcher): Promise<[string, number][]> => {
      client.unwatch("/n", watcher);
      await settle();
      const told = line().asked.map(({ type, rest }): [string, number] => {
        expect(type).toBe(TYPE.removeWatches);
        return [rest.text(), rest.int()];
      });
      for (const _ of told) line().answer(21n);
      return told;
    };
    expect(await forgets(two)).toEqual([]);
    expect(await forgets(one), "its list alone").toEqual([["/n", 1]]);
    expect(await forgets(one)).toEqual([]);
    expect(await forgets(three)).toEqual([["/n", 2]]);
    expect(await forgets(three), "nobody watched it").toEqual([]);
    await answered(client.exists("/n", three), CODE.noNode);
    await answered(client.get("/n", one), 0, NODE);
    expect(await forgets(three), "somebody else counts on it").toEqual([]);
    expect(await forgets(one)).toEqual([["/n", 2]]);
    const { client: other } = await served();
    await answered(other.get("/n", one), 0, NODE);
    line().hangUp();
    other.unwatch("/n", one);
    expect(heard, "without a connection there is nobody to tell").toEqual([]);
  });

  test("what is watched is watched again on the next connection, since what was seen last; of another session nothing is", async () => {
    const { clock, client } = await served();
    const heard: (boolean | undefined)[] = [];
    const watcher = watcherOf(heard);
    await answered(client.get("/node", watcher), 0, NODE);
    await answered(client.exists("/there", watcher), 0, statBytes());
    await answered(client.exists("/absent", watcher), CODE.noNode);
    await answered(client.children("/list", watcher), 0, NODE);
    await hungUp(clock);
    line().accept().greet(SESSION_MS, 11n);
    await settle();
    const [again] = line().asked;
    const lists = (): string[][] => [0, 1, 2].map(() => again?.rest.list(() => again.rest.text()) ?? []);
    expect([again?.xid, again?.type, again?.rest.long()]).toEqual([-8, TYPE.setWatches, 21n]);
    expect(lists()).toEqual([["/node", "/there"], ["/absent"], ["/list"]]);
    await hungUp(clock);
    line().accept().greet(0, 0n);
    await askedAgain(clock);
    line().accept().greet(SESSION_MS, 12n);
    await settle();
    line().answer(30n, 0, DONE);
    await settle();
    expect([typesOf(), heard]).toEqual([[], []]);
  });

  test("many watches are set again in several packets, each well below what a server takes, and none is empty", async () => {
    for (const [length, counts, sizes] of [
      [1, 1, [1]],
      [1_024, 128, [128]],
      [1_024, 257, [128, 128, 1]],
    ] as const) {
      const { clock, client } = await served();
      const path = (n: number): string => (length === 1 ? "/" : `/${String(n).padEnd(length - 1, "x")}`);
      for (let n = 0; n < counts; n += 1)
        await answered(
          client.get(path(n), () => {}),
          0,
          NODE,
        );
      await hungUp(clock);
      line().accept().greet(SESSION_MS, 11n);
      await settle();
      const sent = line().asked.map(({ rest }) => {
        rest.long();
        return rest.list(() => rest.text()).length;
      });
      expect(sent).toEqual(sizes);
    }
  });

  test("is watched only where somebody is to be told", async () => {
    const { client } = await served();
    for (const watcher of [undefined, () => {}]) {
      for (const ask of [
        (): Promise<unknown> => client.get("/n", watcher),
        () => client.exists("/n", watcher),
        () => client.children("/n", watcher),
      ]) {
        const asked = ask();
        await settle();
        const [one] = line().asked;
        expect([one?.rest.text(), one?.rest.flag()]).toEqual(["/n", watcher !== undefined]);
        line().answer(21n, CODE.noNode);
        expect(await asked).toBeNull();
      }
    }
  });

  test("which nodes exist is asked until all that are left do, and by the root where none are", async () => {
    const { client } = await served();
    const checked = (): string[] => {
      const [asked] = line().asked;
      const paths: string[] = [];
      for (;;) {
        const [, done] = [asked?.rest.int(), asked?.rest.flag(), asked?.rest.int()];
        if (done === true || asked === undefined) return paths;
        paths.push(asked.rest.text());
        expect(asked.rest.int()).toBe(-1);
      }
    };
    const confirmed = outcomeOf(client.confirm(["/a", "/b", "/c"]));
    await settle();
    expect(checked()).toEqual(["/a", "/b", "/c"]);
    line().answer(21n, CODE.noNode, failedBytes(0, CODE.noNode, -2));
    await settle();
    expect(checked()).toEqual(["/a", "/c"]);
    line().answer(21n, 0, DONE);
    await settle();
    expect(confirmed.value).toEqual([true, false, true]);
    const none = outcomeOf(client.confirm([]));
    await settle();
    expect(checked()).toEqual(["/"]);
    line().answer(21n, 0, DONE);
    await settle();
    expect(none.value).toEqual([]);
    const last = outcomeOf(client.confirm(["/a"]));
    await settle();
    line().answer(21n, CODE.noNode, failedBytes(CODE.noNode));
    await settle();
    expect(checked(), "what a majority says counts").toEqual(["/"]);
    line().answer(21n, 0, DONE);
    await settle();
    expect(last.value).toEqual([false]);
    const unreadable = outcomeOf(client.confirm([]));
    await settle();
    line().answer(21n, CODE.noAuth, failedBytes(CODE.noAuth));
    await settle();
    expect(unreadable.value, "a root that may not be read: a majority said so").toEqual([]);
    const refused = outcomeOf(client.confirm(["/a", "/b"]));
    await settle();
    line().answer(21n, CODE.noAuth, failedBytes(0, CODE.noAuth));
    await settle();
    expect(refused.error?.code).toBe(CODE.noAuth);
  });

  test("a transaction that failed fails with the code of the part that is to blame", async () => {
    const { client } = await served();
    for (const [codes, code] of [
      [[0, CODE.nodeExists, -2], CODE.nodeExists],
      [[-2, CODE.badVersion], CODE.badVersion],
      [[-2, -2], CODE.connectionLoss],
    ] as const) {
      const failed = outcomeOf(client.transact([{ kind: "check", path: "/a" }]));
      await settle();
      line().answer(21n, code, failedBytes(...codes));
      await settle();
      expect([failed.error?.code, failed.error?.doing]).toEqual([code, "changing /a"]);
    }
    const done = outcomeOf(client.transact([{ kind: "check", path: "/a" }]));
    await settle();
    line().answer(21n, 0, DONE);
    await settle();
    expect(Object.keys(done)).toEqual(["value"]);
  });

  test("when it is closed nobody is told of what happens later", async () => {
    const { client } = await served();
    const heard: (boolean | undefined)[] = [];
    await answered(client.get("/n", watcherOf(heard)), 0, NODE);
    const closed = client.close();
    await settle();
    line().answer(22n);
    await closed;
    line().event(3, "/n");
    expect([heard, pathsOf()]).toEqual([[], []]);
  });
});
