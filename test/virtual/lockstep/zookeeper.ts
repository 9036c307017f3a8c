import assert from "node:assert/strict";
import { SystemChance, SystemClock } from "../../../src/core/clock.js";
import type { ZooKeeperDriver } from "../../../src/engines/zookeeper/driver.js";
import { WireClient } from "../../../src/engines/zookeeper/drivers/wire/client.js";
import { ZooKeeperEngine } from "../../../src/engines/zookeeper/engine.js";
import { CODE, ZooKeeperError } from "../../../src/engines/zookeeper/errors.js";
import { entryOf, escaped, unescaped } from "../../../src/engines/zookeeper/node-names.js";
import { checkOptions } from "../../../src/engines/zookeeper/options.js";
import type { SeededChance } from "../../../src/testing/seeded-chance.js";
import type { PathsWorld, Stored } from "./paths.js";
import { VirtualTime, Wire } from "./time.js";

/** Longer than any test: in real time no session ends. The server has to allow it (`maxSessionTimeout`). */
export const SESSION_MS = 3_600_000;

/** The engine with the client that belongs to it: errors are known by their class. */
export type ZooKeeperCode = {
  readonly WireClient: typeof WireClient;
  readonly ZooKeeperEngine: typeof ZooKeeperEngine;
  readonly checkOptions: typeof checkOptions;
};

/**
 * A world of its own on a shared server: a folder, a clock, and a wire that can be made bad. ZooKeeper keeps a session's time,
 * and each engine the leases of its own claims: so the engine has the virtual clock, and its client the real one.
 */
export function zookeeperWorld(
  port: number,
  chance: SeededChance,
  nodeNames: "curator" | "kazoo" = "curator",
  through: (one: ZooKeeperDriver) => ZooKeeperDriver = (one) => one,
  code: ZooKeeperCode = { WireClient, ZooKeeperEngine, checkOptions },
): PathsWorld {
  const time = new VirtualTime();
  const wire = new Wire(
    chance.between(1, 1_000_000),
    () => new ZooKeeperError(CODE.connectionLoss, "using an unreliable connection"),
  );
  const base = `/${new SystemChance().id()}`;
  const asked = <T>(call: () => Promise<T>): Promise<T> => time.track(() => wire.send(call));
  const wrapped = (client: WireClient): ZooKeeperDriver => ({
    get sessionTimeoutMs() {
      return client.sessionTimeoutMs;
    },
    get sessionId() {
      return client.sessionId;
    },
    start: (listener) =>
      client.start((event) => listener(event.kind === "connected" ? { ...event, sentAt: time.now() } : event)),
    create: (path, data, mode) => asked(() => client.create(path, data, mode)),
    remove: (path, version) => asked(() => client.remove(path, version)),
    set: (path, data, version) => asked(() => client.set(path, data, version)),
    get: (path, watcher) => asked(() => client.get(path, watcher)),
    exists: (path, watcher) => asked(() => client.exists(path, watcher)),
    children: (path, watcher) => asked(() => client.children(path, watcher)),
    unwatch: (path, watcher) => client.unwatch(path, watcher),
    confirm: (paths) => asked(() => client.confirm(paths)),
    transact: (operations) => asked(() => client.transact(operations)),
    stop: () => {},
    close: () => client.close(),
  });
  const newClient = (): WireClient =>
    new code.WireClient({
      hosts: [{ host: "127.0.0.1", port }],
      sessionTimeoutMs: SESSION_MS,
      tls: undefined,
      auth: undefined,
      acl: [{ perms: 31, scheme: "world", id: "anyone" }],
      clock: new SystemClock(),
      chance: new SystemChance(),
    });
  let raw: WireClient | undefined;
  let started = false;
  return {
    time,
    wire,
    sessionBound: true,
    open: () =>
      code.ZooKeeperEngine.open(
        through(wrapped(newClient())),
        code.checkOptions({ clock: time, base, nodeNames }),
        true,
      ),
    leftMs: (expected) => [expected, expected],
    async stored(name): Promise<Stored> {
      raw ??= newClient();
      if (!started) await raw.start(() => {});
      started = true;
      const folder = `${base}/${escaped(name)}`;
      const nodes = (await raw.children(folder))?.names ?? [];
      const claims = [];
      for (const node of nodes) {
        const entry = entryOf(node);
        const there = entry === null ? null : await raw.get(`${folder}/${node}`);
        if (entry === null || there === null) continue;
        const { token = there.stat.czxid, ...more } = JSON.parse(there.data.toString());
        const { id, order, units, capacity } = entry;
        claims.push({ id: id ?? "", order, token, facts: { ...more, units, capacity }, endsAt: undefined });
      }
      const parent = claims.length === 0 ? null : await raw.get(folder);
      // Of the folder's last use, before these came: the server may have removed that folder, or not yet.
      const counts = parent !== null && claims.some(({ token }) => token < parent.stat.mzxid);
      return {
        claims,
        tombstones: ((await raw.children(`${base}/~tombstones/${escaped(name)}`))?.names ?? []).map(unescaped),
        changed: counts && parent.data.length > 0 ? JSON.parse(parent.data.toString()) : null,
      };
    },
    async stop(): Promise<void> {
      await raw?.close();
    },
    async assertEmpty(): Promise<void> {
      const last = newClient();
      await last.start(() => {});
      try {
        const within = async (folder: string): Promise<string[]> =>
          ((await last.children(`${base}/${folder}`))?.names ?? []).map((node) => `${folder}/${node}`);
        const folders = (await last.children(base))?.names ?? [];
        const names = folders.filter((folder) => folder !== "~tombstones");
        // The folders of a name's tombstones go as all folders do: some time after they are empty.
        const left = await Promise.all([...names, ...(await within("~tombstones"))].map(within));
        assert.deepEqual(
          left.flat().filter((node) => !node.startsWith("~cells/")),
          [],
          "no node is left",
        );
      } finally {
        await last.close();
      }
    },
  };
}
