import { onTestFinished } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import type { ClaimRef, Engine } from "../../src/core/engine.js";
import { type EtcdDriver, type EtcdOptions, etcdClient, etcdEngine, openEtcd } from "../../src/engines/etcd/index.js";
import { Keys } from "../../src/engines/etcd/keys.js";
import type { KeyValue } from "../../src/engines/etcd/messages.js";
import type { Locks } from "../../src/locks.js";
import { type EtcdCluster, etcdctl, startEtcd } from "../servers/etcd.js";
import { gate } from "../servers/gate.js";
import { inSomeTries } from "./rig.js";

export { claimOf, listening, states, waiters } from "./rig.js";

/** What the tests of the etcd engine share. Everything opened here is closed when its test is over. */

export async function engineOn(url: string, options: Parameters<typeof openEtcd>[1] = {}): Promise<Engine> {
  const engine = await openEtcd(url, options);
  onTestFinished(() => engine[Symbol.asyncDispose]());
  return engine;
}

export async function locksOn(url: string | Engine, options: ConnectOptions = {}): Promise<Locks> {
  const locks = await inSomeTries(() => connect(url, options));
  onTestFinished(() => locks.close());
  return locks;
}

/** A cluster for one test, which may do to it what it likes. */
export async function ownCluster(...args: Parameters<typeof startEtcd>): Promise<EtcdCluster> {
  const mine = await startEtcd(...args);
  onTestFinished(() => mine.stop());
  return mine;
}

export type Counts = { calls: Record<string, number>; sent: number; events: number };

/** An engine whose client counts what goes over the wire. */
export async function countedOn(url: string, options: EtcdOptions = {}): Promise<{ engine: Engine; counts: Counts }> {
  const client = await etcdClient(url);
  const counts: Counts = { calls: {}, sent: 0, events: 0 };
  const count = (name: string): void => void (counts.calls[name] = (counts.calls[name] ?? 0) + 1);
  const counted: EtcdDriver = {
    call(name, request) {
      count(name);
      return client.call(name, request);
    },
    keepAlive(lease) {
      count("keepAlive");
      return client.keepAlive(lease);
    },
    async watch(heard, ended) {
      const stream = await client.watch((response) => {
        counts.events += response.events.length;
        heard(response);
      }, ended);
      return {
        send(request) {
          counts.sent += 1;
          stream.send(request);
        },
        close: () => stream.close(),
      };
    },
    close: () => client.close(),
  };
  const engine = await etcdEngine(counted, options);
  onTestFinished(async () => {
    await engine[Symbol.asyncDispose]();
    client.close();
  });
  return { engine, counts };
}

/** An engine whose watches are asked for, but not sent until they are let go. */
export async function lateWatchesOn(
  url: string,
): Promise<{ engine: Engine; letGo: () => void; cancelled: () => number }> {
  const client = await etcdClient(url);
  const watched = gate();
  let cancelled = 0;
  const late: EtcdDriver = {
    call: (name, request) => client.call(name, request),
    keepAlive: (lease) => client.keepAlive(lease),
    async watch(heard, ended) {
      const stream = await client.watch((response) => {
        if (response.canceled && response.compact_revision > 0) cancelled += 1;
        heard(response);
      }, ended);
      return { send: (request) => void watched.passed.then(() => stream.send(request)), close: () => stream.close() };
    },
    close: () => client.close(),
  };
  const engine = await etcdEngine(late);
  onTestFinished(async () => {
    await engine[Symbol.asyncDispose]();
    client.close();
  });
  return { engine, letGo: () => watched.open(), cancelled: () => cancelled };
}

/** What stands in the store for a claim. */
export async function standing(client: EtcdDriver, { name, id }: ClaimRef): Promise<KeyValue> {
  const [key, range_end] = new Keys("holdfast/").claims(name);
  const { kvs } = await client.call("range", { key, range_end });
  const kv = kvs.find(({ value }) => (JSON.parse(value.toString()) as { id: string }).id === id);
  if (kv === undefined) throw new Error("it does not stand in the store");
  return kv;
}

/** Every key and every lease in the store. */
export async function leftovers(cluster: EtcdCluster): Promise<{ keys: string[]; leases: string[] }> {
  const [member] = cluster.members;
  if (member === undefined) throw new Error("no member");
  const lines = (text: string): string[] => text.split("\n").filter((line) => line !== "");
  const all = lines(await etcdctl(member, "get", "", "--prefix", "--keys-only"));
  // The one key that stays.
  const keys = all.filter((key) => key !== "holdfast/%/layout-version");
  const leases = lines(await etcdctl(member, "lease", "list")).slice(1);
  return { keys, leases };
}
