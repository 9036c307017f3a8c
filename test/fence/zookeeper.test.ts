import { afterAll, beforeAll, expect, test } from "vitest";
import type { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { CODE } from "../../src/engines/zookeeper/errors.js";
import {
  fencedMulti,
  raiseNode,
  StaleTokenError,
  type ZooKeeperLike,
  type ZooKeeperOperation,
} from "../../src/fence/index.js";
import { rawOn } from "../faults/zookeeper-rig.js";
import { startZooKeeper, type ZooKeeperServer } from "../servers/zookeeper.js";

let server: ZooKeeperServer;
beforeAll(async () => void (server = await startZooKeeper({ lines: ["forceSync=no"] })));
afterAll(() => server?.running.stop());

let made = 0;

/** A client that lets somebody else come in between each read of the fence and the multi behind it. */
async function world(between: (zk: WireClient, fence: string, read: number) => Promise<unknown> = async () => {}) {
  const zk = await rawOn(server.port);
  const top = `/world${(made += 1)}`;
  const [fence, item] = [`${top}/fence`, `${top}/item`];
  for (const path of [top, item]) await zk.create(path, Buffer.alloc(0), "persistent");
  const counts = { reads: 0, multis: 0 };
  const client: ZooKeeperLike<ZooKeeperOperation> = {
    async get(path) {
      const node = await zk.get(path);
      counts.reads += 1;
      await between(zk, fence, counts.reads);
      return node === null ? null : { data: node.data, version: node.stat.version };
    },
    async multi(operations) {
      counts.multis += 1;
      await zk.transact(operations);
    },
  };
  const write = (value: string, token: number): Promise<void> =>
    fencedMulti(client, fence, token, [{ kind: "set", path: item, data: Buffer.from(value), version: -1 }]);
  const state = async (): Promise<unknown> => [
    JSON.parse(String((await zk.get(fence))?.data)).fence,
    String((await zk.get(item))?.data),
  ];
  return { zk, fence, item, client, counts, write, state };
}

const seen = (fence: number): Buffer => Buffer.from(JSON.stringify({ fence, newest: 0, live: [] }));

test.each<[string, (zk: WireClient, fence: string) => Promise<unknown>, number | null]>([
  ["has written", (zk, fence) => zk.transact([{ kind: "set", path: fence, data: seen(6), version: -1 }]), 5],
  ["has made the node", (zk, fence) => zk.create(fence, seen(6), "persistent"), null],
  ["has removed the node", (zk, fence) => zk.remove(fence), 5],
])("a rightful writer goes on when somebody else %s in between", async (_, other, before) => {
  const { zk, fence, counts, write, state } = await world(async (own, path, read) => {
    if (read === 1) await other(own, path);
  });
  if (before !== null) await zk.create(fence, seen(before), "persistent");
  await write("mine", 7);
  expect(await state()).toEqual([7, "mine"]);
  expect(counts).toEqual({ reads: 2, multis: 2 });
});

test("a writer that was overtaken in between by a newer one is refused, and writes nothing", async () => {
  const { counts, write, zk, item } = await world((own, path, read) =>
    read === 1 ? own.create(path, seen(8), "persistent") : Promise.resolve(),
  );
  await expect(write("mine", 7)).rejects.toThrow(StaleTokenError);
  expect([counts, String((await zk.get(item))?.data)]).toEqual([{ reads: 2, multis: 1 }, ""]);
});

test.each<[string, number, (item: string) => ZooKeeperOperation]>([
  ["of a node that is not there", CODE.noNode, (item) => ({ kind: "check", path: `${item}/none`, version: 0 })],
  ["of another version", CODE.badVersion, (item) => ({ kind: "check", path: item, version: 9 })],
  [
    "of a node that is there",
    CODE.nodeExists,
    (item) => ({ kind: "create", path: item, data: Buffer.alloc(0), mode: "persistent" }),
  ],
])("an operation of the caller's %s is not asked for twice", async (_, code, operation) => {
  const { client, fence, item, counts } = await world();
  await expect(fencedMulti(client, fence, 7, [operation(item)])).rejects.toMatchObject({ code });
  expect(counts).toEqual({ reads: 2, multis: 1 });
});

test("any other error of the multi is passed on at once", async () => {
  const { client, fence, counts } = await world();
  const child: ZooKeeperOperation = { kind: "create", path: "no path", data: Buffer.alloc(0), mode: "persistent" };
  await expect(fencedMulti(client, fence, 7, [child])).rejects.toThrow();
  expect(counts).toEqual({ reads: 1, multis: 1 });
});

test("a writer that is overtaken again and again gives up after a hundred attempts", async () => {
  const { zk, fence, counts, write } = await world((own, path) =>
    own.transact([{ kind: "set", path, data: seen(5), version: -1 }]),
  );
  await zk.create(fence, seen(5), "persistent");
  await expect(write("mine", 7)).rejects.toMatchObject({ code: CODE.badVersion });
  expect(counts.multis).toBe(100);
});

test("a raise lifts the fence to the token, also where tokens count once, and never lowers it", async () => {
  const { client, fence, state } = await world();
  await raiseNode(client, fence, 7, { strict: true });
  expect(await state()).toEqual([7, ""]);
  await raiseNode(client, fence, 3);
  expect(await state()).toEqual([7, ""]);
  const broken = new Error("no connection");
  const silent = { ...client, get: () => Promise.reject(broken) };
  await expect(raiseNode(silent, fence, 9)).rejects.toBe(broken);
});
