import { onTestFinished } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import { SystemChance, SystemClock } from "../../src/core/clock.js";
import type { Engine } from "../../src/core/engine.js";
import type { NameState } from "../../src/core/inspect.js";
import { WireClient } from "../../src/engines/zookeeper/drivers/wire/client.js";
import { openZookeeper, type ZooKeeperUrlOptions } from "../../src/engines/zookeeper/index.js";
import type { Locks } from "../../src/locks.js";
import { until } from "../servers/process.js";
import { Proxy } from "../servers/proxy.js";
import { fourLetters, startZooKeeper, type ZooKeeperServer, type ZooKeeperSetting } from "../servers/zookeeper.js";
import { inSomeTries } from "./rig.js";

export { claimOf, listening, waiters } from "./rig.js";

/** What the tests of the ZooKeeper engine share. Everything opened here is closed when its test is over. */

export const urlOf = (...ports: readonly number[]): string =>
  `zookeeper://${ports.map((port) => `127.0.0.1:${port}`).join(",")}/locks`;

export async function engineOn(url: string, options: ZooKeeperUrlOptions = {}): Promise<Engine> {
  const engine = await inSomeTries(() => openZookeeper(url, { sessionTimeoutMs: 4000, ...options }));
  onTestFinished(() => engine[Symbol.asyncDispose]());
  return engine;
}

export async function locksOn(url: string, options: ConnectOptions = {}): Promise<Locks> {
  const locks = await inSomeTries(() => connect(url, { sessionTimeoutMs: 4000, ...options }));
  onTestFinished(() => locks.close());
  return locks;
}

/** A server for one test, which may do to it what it likes. */
export async function ownServer(setting: ZooKeeperSetting = {}): Promise<ZooKeeperServer> {
  const mine = await startZooKeeper(setting);
  onTestFinished(() => mine.running.stop());
  return mine;
}

export async function proxyTo(port: number): Promise<Proxy> {
  const proxy = await Proxy.to(port);
  onTestFinished(() => proxy.close());
  return proxy;
}

const EVERYBODY = { perms: 31, scheme: "world", id: "anyone" };

/** A client without an engine, to look past it. */
export async function rawOn(port: number, acl = [EVERYBODY]): Promise<WireClient> {
  const raw = wireOn(port, acl);
  await raw.start(() => {});
  onTestFinished(() => raw.close());
  return raw;
}

/** A folder that nobody has made yet, and that stays: the engine's own are containers, and the server removes one that is empty for a moment. */
export async function lastingFolder(raw: WireClient, path: string): Promise<void> {
  const parts = path.split("/").slice(1);
  await until("the folder is there", async () => {
    for (const n of parts.keys()) {
      await raw.create(`/${parts.slice(0, n + 1).join("/")}`, Buffer.alloc(0), "persistent").catch(() => {});
    }
    return (await raw.exists(path)) !== null;
  });
}

/** Without a session yet. */
export function wireOn(port: number, acl = [EVERYBODY]): WireClient {
  return new WireClient({
    hosts: [{ host: "127.0.0.1", port }],
    sessionTimeoutMs: 10_000,
    tls: undefined,
    auth: undefined,
    acl,
    clock: new SystemClock(),
    chance: new SystemChance(),
  });
}

export async function stateOf(of: Pick<Locks, "inspect">, name: string): Promise<NameState | undefined> {
  for await (const state of of.inspect({ name })) return state;
  return undefined;
}

/** One of the figures of `mntr`. */
export async function figure(port: number, name: string): Promise<number> {
  const text = await fourLetters(port, "mntr");
  const [, value] = new RegExp(`^${name}\\t(\\S+)`, "m").exec(text) ?? [];
  return Number(value);
}

/** What the server has: nodes, watches, and messages so far. */
export async function counts(port: number): Promise<{ nodes: number; watches: number; messages: number }> {
  const [nodes, watches] = [await figure(port, "zk_znode_count"), await figure(port, "zk_watch_count")];
  const [received, sent] = [await figure(port, "zk_packets_received"), await figure(port, "zk_packets_sent")];
  return { nodes, watches, messages: received + sent };
}
