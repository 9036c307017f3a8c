import { randomBytes } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { EngineRefusedError, EngineUnavailableError } from "../../src/core/errors.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { type EtcdCluster, startEtcd } from "../servers/etcd.js";
import { answering, type Behaviour, babbling, FakeGrpc, frame, plainly, refusing } from "../servers/fake-grpc.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { engineOn, locksOn, waiters } from "./etcd-rig.js";

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
    const both = await locksOn(`etcd://127.0.0.1:${fake.port},127.0.0.1:${port}`, { callTimeoutMs: 3000 });
    await (await both.mutex("elsewhere").acquire()).release();
    expect(fake.calls).toBeGreaterThan(1);
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
    const locks = await locksOn(`etcd://127.0.0.1:${proxy.port}`, { leaseMs: 60_000, callTimeoutMs: 300 });
    const other = await locksOn(cluster.url);
    const [hold, theirs] = [await locks.mutex("held").acquire(), await other.mutex("waited for").acquire()];
    const waiting = locks.mutex("waited for").acquire();
    await until("it waits", async () => (await waiters(other, "waited for")) === 1);
    proxy.point(fake.port);
    await expect(locks.mutex("other").acquire({ waitMs: 500 })).rejects.toThrow(EngineUnavailableError);
    proxy.point(port);
    await theirs.release();
    await (await waiting).release();
    hold.check();
    await hold.release();
  });

  test("a watch that is told something without a header hears nothing of it, and ends", async () => {
    // Watch 1, and the removal of key "k".
    const fake = await fakeOf(answering(frame(Buffer.from("10015a07080112030a016b", "hex")), null));
    const client = await etcdClient(`etcd://127.0.0.1:${fake.port}`);
    onTestFinished(() => client.close());
    let heard = 0;
    await new Promise<void>((ended, failed) => {
      client
        .watch(() => (heard += 1), ended)
        .then((stream) => stream.send({ create_request: { key: "k", watch_id: 1 } }), failed);
    });
    expect(heard).toBe(0);
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
