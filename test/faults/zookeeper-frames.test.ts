import { spawnSync } from "node:child_process";
import type { Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { SystemChance, SystemClock } from "../../src/core/clock.js";
import type { SessionEvent } from "../../src/engines/zookeeper/driver.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import { openZookeeper } from "../../src/engines/zookeeper/index.js";
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
import { ownServer, rawOn } from "./zookeeper-rig.js";

/** Frames that never end, and lengths that are none: an incomplete frame is silence, and silence ends a connection. */

const SESSION_MS = 1500;

/** The first of the peers is tried first. */
function inOrder(): SystemChance {
  let drawn = 1;
  return Object.assign(new SystemChance(), { fraction: () => (drawn = Math.max(0, drawn - 0.001)) });
}

type Started = { readonly client: WireClient; readonly events: SessionEvent[] };

const started = (...peers: readonly Peer[]): Promise<Started> =>
  startedWith({ sessionTimeoutMs: SESSION_MS }, ...peers.map(({ port }) => port));

async function startedWith(
  times: { sessionTimeoutMs: number; callTimeoutMs?: number },
  ...ports: readonly number[]
): Promise<Started> {
  const events: SessionEvent[] = [];
  const client = new WireClient({
    ...times,
    hosts: ports.map((port) => ({ host: "127.0.0.1", port })),
    tls: undefined,
    auth: undefined,
    acl: [],
    clock: new SystemClock(),
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
  for (const [what, bytes] of [
    ["too large", longer],
    ["zero", () => lengthOf(0)],
    ["below zero", () => lengthOf(-7)],
    ["huge", () => lengthOf(2 ** 31 - 1)],
  ] as const) {
    test(`a frame whose length is ${what} costs the connection: the session goes on at a healthy server`, async () => {
      const [bad, good] = [await zooKeeperPeer(onceWrong(bytes)), await zooKeeperPeer({ sessionMs: SESSION_MS })];
      const { client } = await started(bad, good);
      expect(bad.greetings).toBe(1);
      await expect(client.exists("/x")).rejects.toThrow(/connection loss/);
      await until("it moved on", () => good.greetings > 0, 10_000);
      expect(await client.exists("/x")).toBeNull();
    });
  }

  test("a request that is never answered, although pings are, ends the connection", async () => {
    const silent = { sessionMs: SESSION_MS, answer: (_: Socket, { type }: Asked) => type !== PING };
    const [bad, good] = [await zooKeeperPeer(silent), await zooKeeperPeer({ sessionMs: SESSION_MS })];
    const { client } = await started(bad, good);
    await expect(client.exists("/x")).rejects.toThrow(/connection loss/);
    await until("it moved on", () => good.greetings > 0, 10_000);
  });
});

test("a server that answers one request after the other keeps its connection, however long the last one waits", async () => {
  let last: Promise<unknown> = Promise.resolve();
  const peer = await zooKeeperPeer({
    sessionMs: 3000,
    answer(socket, { xid, type }) {
      if (type === PING) return false;
      last = last.then(() => pause(250)).then(() => socket.write(reply(xid, 1n, CODE.noNode)));
      return true;
    },
  });
  const client = await rawOn(peer.port);
  // All of them together take a session, and one may take two thirds of it.
  expect(await Promise.all(Array.from({ length: 12 }, () => client.exists("/x")))).not.toContain(undefined);
  expect(peer.greetings).toBe(1);
});

describe("a server that dribbles", () => {
  /** A byte at a time, of a frame that never ends. */
  const dribble = (socket: Socket): void => {
    const bytes = [...handshake(SESSION_MS).subarray(0, -1)];
    const timer = setInterval(() => socket.write(Buffer.from([bytes.shift() ?? 0])), 50);
    socket.on("close", () => clearInterval(timer));
    // More is announced than ever comes.
    bytes[3] = 200;
  };

  test("does not keep the first connection from the next server", async () => {
    const [bad, good] = [await zooKeeperPeer({ greet: dribble }), await zooKeeperPeer()];
    const options = { chance: inOrder(), callTimeoutMs: 3000, sessionTimeoutMs: 20_000 };
    const engine = await openZookeeper(`zookeeper://127.0.0.1:${bad.port},127.0.0.1:${good.port}/x`, options);
    onTestFinished(() => engine[Symbol.asyncDispose]());
    expect([bad.greetings, good.greetings]).toEqual([1, 1]);
  });

  test("in place of an answer: the connection is replaced, and the user is told", async () => {
    let dribbled = false;
    const bad = await zooKeeperPeer({
      sessionMs: SESSION_MS,
      answer(socket, asked) {
        // The configuration is read while connecting; what comes then is never answered whole.
        if (asked.type === PING || dribbled || asked.xid === 1) return dribbled;
        dribbled = true;
        const packet = longer(asked);
        const timer = setInterval(() => socket.write(packet.subarray(0, 1)), 50);
        socket.on("close", () => clearInterval(timer));
        socket.write(packet);
        return true;
      },
    });
    const good = await zooKeeperPeer({ sessionMs: SESSION_MS });
    const url = `zookeeper://127.0.0.1:${bad.port},127.0.0.1:${good.port}/x`;
    const locks = await connect(url, { chance: inOrder(), sessionTimeoutMs: SESSION_MS });
    onTestFinished(() => locks.close());
    const warnings: string[] = [];
    locks.on("warning", ({ message }) => warnings.push(message));
    await until("it moved on", () => good.greetings > 0, 10_000);
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
  const { client, events } = await startedWith({ sessionTimeoutMs: 10_000, callTimeoutMs: answerMs }, port);
  const asking = client.exists("/zookeeper");
  await new Promise((resolve) => setImmediate(resolve));
  // What the server answers lies there, unread, for longer than it may leave a request unanswered.
  expect(spawnSync(process.execPath, ["-e", `setTimeout(() => {}, ${stoodMs})`]).status).toBe(0);
  expect(await asking).not.toBeNull();
  expect(events.map(({ kind }) => kind)).toEqual(["connected"]);
});
