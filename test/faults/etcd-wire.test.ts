import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineRefusedError, EngineUnavailableError, HoldfastError } from "../../src/core/errors.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { type EtcdCluster, type Member, restart, startEtcd } from "../servers/etcd.js";
import { answering, type Behaviour, babbling, FakeGrpc, frame, plainly, refusing } from "../servers/fake-grpc.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { claimOf, engineOn, locksOn, ownCluster, waiters } from "./etcd-rig.js";

/** Servers that answer what etcd never would, and connections that end wherever they can. Nothing of it may end the program. */

let cluster: EtcdCluster;
let port = 0;
beforeAll(async () => {
  cluster = await startEtcd();
  port = cluster.members[0]?.port ?? 0;
}, 60_000);
afterAll(() => cluster?.stop());

const uncaught: unknown[] = [];
const note = (error: unknown): void => void uncaught.push(error);
beforeEach(() => {
  uncaught.length = 0;
  process.on("uncaughtException", note);
  process.on("unhandledRejection", note);
});
afterEach(() => {
  process.off("uncaughtException", note);
  process.off("unhandledRejection", note);
  expect(uncaught, "nothing that would end the program").toEqual([]);
});

async function fakeOf(behaviour: Behaviour): Promise<FakeGrpc> {
  const fake = await FakeGrpc.start(behaviour);
  onTestFinished(() => fake.stop());
  return fake;
}

const EMPTY = new Uint8Array();
const HUGE = 0xff_ff_ff_ff;

/** What may be over in a moment, or at another member. */
const broken: readonly [string, Behaviour][] = [
  ["an OK without a message", answering(EMPTY)],
  ["an OK without a message or headers", refusing(0, "")],
  ["two messages", answering(Buffer.concat([frame(EMPTY), frame(EMPTY)]))],
  ["an empty message", answering(frame(EMPTY))],
  ["half a frame, and silence", answering(frame(Buffer.alloc(10), 100), null)],
  ["half a frame, and the end", answering(frame(Buffer.alloc(10), 100))],
  ["half of a frame's length", answering(Buffer.alloc(3))],
  ["garbage in a frame", answering(frame(randomBytes(200)))],
  ["fields of the wrong types", answering(frame(Buffer.from("08011001180120012801", "hex")))],
  ["a number without an end", answering(frame(Buffer.alloc(64, 0xff)))],
  ["a frame of 4 GB", answering(frame(Buffer.alloc(1000), HUGE), null)],
  ["a compressed frame that is none", answering(frame(randomBytes(50), 50, 1))],
  ["garbage instead of a frame", answering(randomBytes(500))],
  ["no answer", () => {}],
  ["a reset", (stream) => stream.close(2)],
  ["a refused stream", (stream) => stream.close(7)],
  ["headers alone", (stream) => stream.respond({ ":status": 200, "content-type": "application/grpc" })],
  ["a web page", plainly(200, "<html>")],
  ["a gateway that finds nobody", plainly(502, "bad gateway")],
  ["unavailable", refusing(14, "nobody is there")],
  ["an internal error", refusing(13, "oops")],
  ["a status that does not exist", refusing(99, "what?")],
];

/** What stays so until somebody does something about it. */
const refused: readonly [string, Behaviour, RegExp][] = [
  ["a server without this service", refusing(12, "unknown service etcdserverpb.Cluster"), /is etcd that answers.*3\.4/],
  ["a web server without this page", plainly(404, "not found"), /is etcd that answers/],
  ["a gateway that asks for a password", plainly(401, "who are you?"), /user and the password/],
  ["a gateway that forbids it", plainly(403, "no"), /readwrite|may not/],
  ["no user", refusing(3, "etcdserver: user name is empty"), /Give a user/],
  ["no permission", refusing(7, "etcdserver: permission denied"), /readwrite/],
  ["a wrong password", refusing(3, "etcdserver: authentication failed, invalid user ID or password"), /Check the user/],
  ["a limit on operations", refusing(3, "etcdserver: too many operations in txn request"), /--max-txn-ops/],
  ["a limit on size", refusing(3, "etcdserver: request is too large"), /--max-request-bytes/],
];

describe("a server that answers wrongly", () => {
  test.each(broken)("%s: it is told as unavailable, and another member is asked", async (_what, behaviour) => {
    const fake = await fakeOf(behaviour);
    const alone = await engineOn(`etcd://127.0.0.1:${fake.port}`, { callTimeoutMs: 400 }).catch((e: unknown) => e);
    expect(alone).toBeInstanceOf(EngineUnavailableError);
    expect(String(alone)).not.toMatch(/version/);
    // On a busy machine its time may have been over before it asked.
    const asked = fake.calls;
    const both = await locksOn(`etcd://127.0.0.1:${fake.port},127.0.0.1:${port}`, { callTimeoutMs: 3000 });
    await (await both.mutex("elsewhere").acquire()).release();
    expect(fake.calls).toBeGreaterThan(asked);
  });

  test.each(refused)("%s: it is refused with advice", async (_what, behaviour, advice) => {
    const fake = await fakeOf(behaviour);
    const error = await engineOn(`etcd://127.0.0.1:${fake.port}`, { callTimeoutMs: 2000 }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(EngineRefusedError);
    expect(String(error)).toMatch(advice);
  });

  test.each(broken)("%s, for a while: holds and waiters outlive it", async (_what, behaviour) => {
    const fake = await fakeOf(behaviour);
    const proxy = await Proxy.to(port);
    onTestFinished(() => proxy.close());
    const locks = await locksOn(`etcd://127.0.0.1:${proxy.port}`, { leaseMs: 60_000, callTimeoutMs: 2000 });
    const other = await locksOn(cluster.url);
    const [hold, theirs] = [await locks.mutex("held").acquire(), await other.mutex("waited for").acquire()];
    const waiting = locks.mutex("waited for").acquire();
    await until("it waits", async () => (await waiters(other, "waited for")) === 1);
    proxy.point(fake.port);
    await expect(locks.mutex("other").acquire({ waitMs: 500 })).rejects.toThrow(EngineUnavailableError);
    proxy.point(port);
    await theirs.release();
    await (await waiting).release();
    hold.throwIfLost();
    await hold.release();
  });

  test.each([
    ["3.3.27", false],
    ["2.3.8", false],
    ["3.4.0", true],
    ["3.10.1-rc.0", true],
    ["4.0.0", true],
    ["", true],
  ])(
    "version %j: what is too old is refused by its number, before it can be used by halves",
    async (version, goesOn) => {
      const asked: string[] = [];
      const bytes = (text: string): Buffer => Buffer.from([text.length, ...Buffer.from(text)]);
      const fake = await fakeOf((stream, path) => {
        asked.push(path);
        const status = Buffer.concat([Buffer.from("0a0012", "hex"), bytes(version)]);
        // Of a transaction: it succeeded.
        const other = Buffer.from(path.endsWith("/Txn") ? "0a001001" : "0a00", "hex");
        return answering(frame(path.endsWith("/Status") ? status : other))(stream, path);
      });
      const error = await engineOn(`etcd://127.0.0.1:${fake.port}`, { callTimeoutMs: 2000 }).catch((e: unknown) => e);
      if (!goesOn) {
        expect(error).toBeInstanceOf(EngineRefusedError);
        expect(String(error)).toMatch(`its version is ${version}`);
        expect(String(error)).toMatch(/3\.4 or later/);
      }
      expect(asked.includes("/etcdserverpb.Lease/LeaseGrant"), "it is asked for more").toBe(goesOn);
    },
  );

  test("a watch that is told something without a header hears nothing of it, and ends", async () => {
    // Watch 1, and the removal of key "k".
    const fake = await fakeOf(answering(frame(Buffer.from("10015a07080112030a016b", "hex")), null));
    const client = await etcdClient(`etcd://127.0.0.1:${fake.port}`);
    onTestFinished(() => client.close());
    let heard = 0;
    let ended: Error | undefined;
    const stream = await client.watch(
      () => (heard += 1),
      (cause) => (ended = cause),
    );
    stream.send({ create_request: { key: "k", watch_id: 1 } });
    await until("it ends", () => ended !== undefined || heard > 0);
    expect(heard).toBe(0);
    expect(String(ended)).toMatch(/no header/);
  });

  test.each([
    ["garbage", randomBytes(300)],
    ["HTTP/1.1", Buffer.from("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")],
    ["nothing", EMPTY],
    ["half of HTTP/2's settings", Buffer.from("000012", "hex")],
    ["a frame of 16 MB", Buffer.from("ffffff000000000001", "hex")],
  ])("a port that says %s: told within the time limit, and another member is asked", async (_what, bytes) => {
    const fake = await babbling(bytes);
    onTestFinished(() => fake.stop());
    const alone = engineOn(`etcd://127.0.0.1:${fake.port}`, { callTimeoutMs: 400 });
    await expect(alone).rejects.toThrow(EngineUnavailableError);
    const both = await locksOn(`etcd://127.0.0.1:${fake.port},127.0.0.1:${port}`, { callTimeoutMs: 3000 });
    await (await both.mutex("elsewhere").acquire()).release();
  });
});

describe("a connection that ends", () => {
  /** Everything that goes over the wire: authentication aside, each kind of call and stream. */
  const session = async (url: string, waitMs: number): Promise<void> => {
    const locks = await connect(url, { callTimeoutMs: waitMs, leaseMs: 10_000 });
    try {
      const hold = await locks.mutex("session").acquire({ waitMs });
      const waiting = locks
        .mutex("session")
        .acquire({ waitMs })
        .catch(() => null);
      const fixed = await locks.mutex("fixed").acquire({ renew: false, waitMs });
      await locks.counter("count").add(1);
      await fixed.release();
      await hold.release();
      await (await waiting)?.release();
    } finally {
      await locks.close();
    }
  };

  test.each([
    ["closed", false],
    ["reset", true],
  ])(
    "%s after any number of bytes: calls reject or are made anew, and nothing is thrown past them",
    async (_how, reset) => {
      const proxy = await Proxy.to(port);
      onTestFinished(() => proxy.close());
      const url = `etcd://127.0.0.1:${proxy.port}`;
      let failed = 0;
      for (let bytes = 1; bytes < 1500; bytes += bytes < 150 ? 7 : 61) {
        proxy.endAfter(bytes, reset);
        await session(url, 300).catch((error: unknown) => {
          expect(error).toBeInstanceOf(HoldfastError);
          failed += 1;
        });
      }
      expect(failed, "the shortest ones end before they are of use").toBeGreaterThan(0);
      proxy.heal();
      // Who was cut off may have left a claim behind, for its lease; and now nothing is cut off, however slow the machine.
      await session(url, 30_000);
    },
    60_000,
  );

  test("cut again and again while streams are opened, used and closed: nothing is thrown past the calls", async () => {
    const proxy = await Proxy.to(port);
    onTestFinished(() => proxy.close());
    for (let round = 0; round < 25; round += 1) {
      const engine = await engineOn(`etcd://127.0.0.1:${proxy.port}`, { callTimeoutMs: 2000 });
      const claims = Array.from({ length: 5 }, () => claimOf(`round ${round}`, { leaseMs: 2000 }));
      const calls = claims.map((claim) => engine.claim(claim));
      const unwatch = engine.cells?.watch("cell", () => {});
      // After as many turns of the event loop as this round has: somewhere between the first byte and the last.
      for (let turns = 0; turns < round; turns += 1) await new Promise((resolve) => setImmediate(resolve));
      proxy.cut();
      const renewing = engine.renew(claims).catch(() => []);
      if (round % 2 === 0) unwatch?.();
      if (round % 3 === 0) await engine[Symbol.asyncDispose]();
      proxy.heal();
      await Promise.allSettled([...calls, renewing]);
      if (round % 3 === 1) await Promise.allSettled(claims.map((claim) => engine.release(claim)));
      await engine[Symbol.asyncDispose]();
    }
  }, 60_000);

  test("a server that is killed in the middle of everything, and told to go elsewhere: nothing is thrown past the calls", async () => {
    const mine = await ownCluster();
    const [member] = mine.members as [Member];
    for (const signal of ["SIGKILL", "SIGTERM"] as const) {
      const locks = await locksOn(mine.url, { callTimeoutMs: 500, leaseMs: 20_000 });
      const hold = await locks.mutex(signal).acquire();
      const waiting = locks.mutex(signal).acquire();
      await until("it waits", async () => (await waiters(locks, signal)) === 1);
      const claims = Promise.allSettled(
        Array.from({ length: 20 }, (_, n) => locks.mutex(`${signal} ${n}`).acquire({ waitMs: 200 })),
      );
      await member.running.end(signal);
      await claims;
      await restart(member);
      await hold.release();
      await (await waiting).release();
    }
  }, 60_000);

  test("a server that says goodbye after each call is asked again, on a new connection", async () => {
    const fake = await fakeOf(() => {});
    const client = await etcdClient(`etcd://127.0.0.1:${fake.port}`, { callTimeoutMs: 5000 });
    onTestFinished(() => client.close());
    fake.behaviour = (stream, path) => {
      answering(frame(Buffer.from("0a00", "hex")))(stream, path);
      fake.goAway();
    };
    for (let n = 0; n < 10; n += 1) await client.call("range", { key: "k" }).catch((error: unknown) => error);
    let ended = 0;
    for (let n = 0; n < 5; n += 1) {
      const stream = await client.watch(
        () => {},
        () => (ended += 1),
      );
      stream.send({ create_request: { key: "k", watch_id: 1 } });
    }
    await until("all streams have ended", () => ended === 5);
    expect(fake.calls).toBeGreaterThanOrEqual(15);
  });
});
