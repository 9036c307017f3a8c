import { spawnSync } from "node:child_process";
import type { Socket } from "node:net";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { type Clock, SystemChance, SystemClock } from "../../src/core/clock.js";
import type { SessionEvent } from "../../src/engines/zookeeper/driver.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { pause, until } from "../servers/process.js";
import {
  type Asked,
  type Behaviour,
  handshake,
  type Peer,
  PING,
  reply,
  zooKeeperPeer,
} from "../servers/zookeeper-peer.js";
import { ownServer } from "./zookeeper-rig.js";

/** Frames that never end, and lengths that are none: an incomplete frame is silence, and silence ends a connection. */

const SESSION_MS = 1500;

/** The first of the peers is tried first. */
function inOrder(): SystemChance {
  let drawn = 1;
  return Object.assign(new SystemChance(), { fraction: () => (drawn = Math.max(0, drawn - 0.001)) });
}

type Started = { readonly client: WireClient; readonly events: SessionEvent[] };

/** On a clock that moves only when told: however late a busy machine hands on an answer, nobody counts as silent for it. */
async function started(...peers: readonly Peer[]): Promise<Started & { readonly clock: FakeClock }> {
  const clock = new FakeClock();
  const ports = peers.map(({ port }) => port);
  return { clock, ...(await startedWith({ sessionTimeoutMs: SESSION_MS }, clock, ...ports)) };
}

/** Two thirds of a session and a second check; no more, because the next server has only what is left of the session. */
const SILENCE_MS = (SESSION_MS * 2) / 3 + 100;

const connections = (events: readonly SessionEvent[]): number =>
  events.filter(({ kind }) => kind === "connected").length;

async function startedWith(
  times: { sessionTimeoutMs: number; callTimeoutMs?: number },
  clock: Clock,
  ...ports: readonly number[]
): Promise<Started> {
  const events: SessionEvent[] = [];
  const client = new WireClient({
    ...times,
    hosts: ports.map((port) => ({ host: "127.0.0.1", port })),
    tls: undefined,
    auth: undefined,
    acl: [],
    clock,
    chance: inOrder(),
  });
  onTestFinished(() => client.close());
  await client.start((event) => events.push(event));
  return { client, events };
}

const lengthOf = (length: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32BE(length);
  return bytes;
};

/** Answers the first request with this; everything else as it should. */
const onceWrong = (bytes: (asked: Asked) => Buffer): Behaviour => {
  let wrong = false;
  return {
    sessionMs: SESSION_MS,
    answer(socket, asked) {
      if (wrong || asked.type === PING) return false;
      wrong = true;
      socket.write(bytes(asked));
      return true;
    },
  };
};

const longer = ({ xid }: Asked): Buffer => {
  const packet = reply(xid, 1n, 0);
  packet.writeInt32BE(packet.length + 60_000);
  return packet;
};

describe("one wrong length", () => {
  for (const [what, bytes, afterMs] of [
    ["too large", longer, SILENCE_MS],
    ["zero", () => lengthOf(0), 0],
    ["below zero", () => lengthOf(-7), 0],
    ["huge", () => lengthOf(2 ** 31 - 1), 0],
  ] as const) {
    test(`a frame whose length is ${what} costs the connection: the session goes on at a healthy server`, async () => {
      const [bad, good] = [await zooKeeperPeer(onceWrong(bytes)), await zooKeeperPeer({ sessionMs: SESSION_MS })];
      const { client, events, clock } = await started(bad, good);
      expect(bad.greetings).toBe(1);
      const asked = client.exists("/x").catch((error: Error) => error.message);
      await until("it was asked", () => bad.requests === 1);
      // Bytes of it go on coming while time passes: they are no answer.
      for (let passed = 0; passed < afterMs; passed += afterMs / 3) {
        for (const socket of bad.sockets) socket.write(Buffer.alloc(1));
        await pause(20);
        await clock.advance(afterMs / 3);
      }
      await until("that connection ended", () => events.some(({ kind }) => kind === "disconnected"));
      expect(await asked).toMatch(/connection loss/);
      // The pause before another server is tried.
      await clock.advance(0);
      await until("it moved on", () => connections(events) === 2);
      expect(good.greetings).toBe(1);
      expect(await client.exists("/x")).toBeNull();
    });
  }

  test("a request that is never answered, although pings are, ends the connection", async () => {
    let pings = 0;
    const silent = {
      sessionMs: SESSION_MS,
      answer(_: Socket, { type }: Asked): boolean {
        if (type === PING) pings += 1;
        return type !== PING;
      },
    };
    const [bad, good] = [await zooKeeperPeer(silent), await zooKeeperPeer({ sessionMs: SESSION_MS })];
    const { client, events, clock } = await started(bad, good);
    const asked = client.exists("/x").catch((error: Error) => error.message);
    await until("it was asked", () => bad.requests === 1);
    // A ping after a third of the session, and another after the next; the first is answered before that.
    await clock.advance(SESSION_MS / 3);
    await until("a ping", () => pings === 1);
    await clock.advance(SILENCE_MS - SESSION_MS / 3);
    expect(await asked).toMatch(/connection loss/);
    await until("it moved on", () => connections(events) === 2);
    expect(good.greetings).toBe(1);
  });
});

test("a request that is not answered in the time for a call ends the connection, long before silence would", async () => {
  const clock = new FakeClock();
  const callTimeoutMs = 400;
  const bad = await zooKeeperPeer({ sessionMs: SESSION_MS, answer: (_, { type }) => type !== PING });
  const { client, events } = await startedWith({ sessionTimeoutMs: SESSION_MS, callTimeoutMs }, clock, bad.port);
  const asked = client.exists("/x").catch((error: Error) => error.message);
  await until("it was asked", () => bad.requests === 1);
  await clock.advance(callTimeoutMs - 1);
  expect(events.map(({ kind }) => kind)).toEqual(["connected"]);
  // The second look comes a moment later.
  await clock.advance(1 + 60);
  expect(events.map(({ kind }) => kind)).toContain("disconnected");
  expect(await asked).toMatch(/connection loss/);
});

test("a server that answers one request after the other keeps its connection, however long the last one waits", async () => {
  const MANY = 12;
  const unanswered: (() => void)[] = [];
  const peer = await zooKeeperPeer({
    sessionMs: SESSION_MS,
    answer(socket, { xid, type }) {
      // Those that are counted; the end of the session is answered at once.
      if (type === PING || unanswered.length === MANY) return false;
      unanswered.push(() => socket.write(reply(xid, 1n, CODE.noNode)));
      return true;
    },
  });
  const { client, clock } = await started(peer);
  let answered = 0;
  const asking = Array.from({ length: MANY }, () => client.exists("/x").then(() => (answered += 1)));
  await until("all were asked", () => unanswered.length === MANY);
  // All of them together take four sessions, and one may take two thirds of it.
  for (const [n, answer] of unanswered.entries()) {
    await clock.advance(SESSION_MS / 3);
    answer();
    await until("an answer", () => answered === n + 1);
  }
  await Promise.all(asking);
  expect(peer.greetings).toBe(1);
});

describe("a server that dribbles", () => {
  let dribbled = 0;
  beforeEach(() => void (dribbled = 0));

  /** A byte at a time, of a frame that never ends. */
  const dribble = (socket: Socket): void => {
    const bytes = [...handshake(SESSION_MS).subarray(0, -1)];
    const timer = setInterval(() => {
      socket.write(Buffer.from([bytes.shift() ?? 0]));
      dribbled += 1;
    }, 50);
    socket.on("close", () => clearInterval(timer));
    // More is announced than ever comes.
    bytes[3] = 200;
  };

  test("does not keep the first connection from the next server", async () => {
    const [bad, good] = [await zooKeeperPeer({ greet: dribble }), await zooKeeperPeer()];
    const clock = new FakeClock();
    const options = { chance: inOrder(), clock, callTimeoutMs: 3000, sessionTimeoutMs: 20_000 };
    const opening = openZookeeper(`zookeeper://127.0.0.1:${bad.port},127.0.0.1:${good.port}/x`, options);
    // Half of the time for two servers, and a second check.
    for (const bytes of [3, 6, 9]) {
      await until("some of it came", () => dribbled > bytes);
      await clock.advance((options.callTimeoutMs / 2 + 100) / 3);
    }
    await until("it moved on", () => good.greetings > 0);
    const engine = await opening;
    onTestFinished(() => engine[Symbol.asyncDispose]());
    expect([bad.greetings, good.greetings]).toEqual([1, 1]);
  });

  test("in place of an answer: the connection is replaced, and the user is told", async () => {
    const bad = await zooKeeperPeer({
      sessionMs: SESSION_MS,
      answer(socket, asked) {
        // The configuration is read while connecting; what comes then is never answered whole.
        if (asked.type === PING || dribbled > 0 || asked.xid === 1) return dribbled > 0;
        dribbled = 1;
        const packet = longer(asked);
        const timer = setInterval(() => {
          socket.write(packet.subarray(0, 1));
          dribbled += 1;
        }, 50);
        socket.on("close", () => clearInterval(timer));
        socket.write(packet);
        return true;
      },
    });
    const good = await zooKeeperPeer({ sessionMs: SESSION_MS });
    const clock = new FakeClock();
    const url = `zookeeper://127.0.0.1:${bad.port},127.0.0.1:${good.port}/x`;
    const locks = await connect(url, { chance: inOrder(), clock, sessionTimeoutMs: SESSION_MS });
    onTestFinished(() => locks.close());
    const warnings: string[] = [];
    locks.on("warning", ({ message }) => warnings.push(message));
    // The session's own heartbeat is the first question after that.
    await clock.advance(SESSION_MS / 6);
    // Bytes go on coming while time passes: they are no answer.
    for (const bytes of [1, 4, 7]) {
      await until("some of it came", () => dribbled > bytes);
      await clock.advance((SILENCE_MS - SESSION_MS / 6) / 3);
    }
    await until("it moved on", () => good.greetings > 0);
    await until("the user is told", () => warnings.length > 0);
    expect(warnings[0]).toMatch(/(silent|unanswered) for \d+ ms/);
    expect(warnings[0]).toContain(`127.0.0.1:${bad.port}`);
  });
});

test("a program that stood still does not take its own deafness for the server's silence", {
  timeout: 60_000,
}, async () => {
  const { port } = await ownServer({ tickMs: 1000 });
  const [answerMs, stoodMs] = [2500, 3000];
  const { client, events } = await startedWith(
    { sessionTimeoutMs: 10_000, callTimeoutMs: answerMs },
    new SystemClock(),
    port,
  );
  const asking = client.exists("/zookeeper");
  await new Promise((resolve) => setImmediate(resolve));
  // What the server answers lies there, unread, for longer than it may leave a request unanswered.
  expect(spawnSync(process.execPath, ["-e", `setTimeout(() => {}, ${stoodMs})`]).status).toBe(0);
  expect(await asking).not.toBeNull();
  expect(events.map(({ kind }) => kind)).toEqual(["connected"]);
});
