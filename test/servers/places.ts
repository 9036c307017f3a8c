import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ConnectOptions } from "../../src/connect.js";
import { startEtcd } from "./etcd.js";
import { startMariadb } from "./mariadb.js";
import { startPostgres } from "./postgres.js";
import { startRedis } from "./redis.js";
import { startEnsemble, startZooKeeper, untilLeader } from "./zookeeper.js";

export type Place = { readonly url: string; readonly options?: ConnectOptions; stop(): Promise<void> };

/** `HOLDFAST_LONG=1`: for half an hour, and with three servers where a store is made of several. */
export const LONG = process.env.HOLDFAST_LONG === "1";

/** A store of each kind that several processes can share. */
export const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  async sqlite() {
    const folder = mkdtempSync(join(tmpdir(), "holdfast-recipes-"));
    return { url: `sqlite:${join(folder, "locks.db")}`, stop: async () => rmSync(folder, { recursive: true }) };
  },
  async redis() {
    const { url, running } = await startRedis();
    return { url, stop: () => running.stop() };
  },
  async postgres() {
    const { url, running } = await startPostgres();
    return { url, stop: () => running.stop() };
  },
  async mariadb() {
    const { url, running } = await startMariadb();
    return { url, stop: () => running.stop() };
  },
  async zookeeper() {
    // Three ticks: a process that was killed is noticed soon, and a busy machine keeps its sessions.
    const options = { sessionTimeoutMs: 1500 };
    if (!LONG) {
      const { port, running } = await startZooKeeper();
      return { url: `zookeeper://127.0.0.1:${port}`, options, stop: () => running.stop() };
    }
    const ensemble = await startEnsemble();
    await untilLeader(ensemble);
    const hosts = ensemble.ports.map((port) => `127.0.0.1:${port}`).join(",");
    return { url: `zookeeper://${hosts}`, options, stop: ensemble.stop };
  },
  etcd: () => startEtcd(LONG ? 3 : 1),
  async quorum() {
    const servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
    return {
      url: `redlock://${servers.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
      stop: async () => void (await Promise.all(servers.map(({ running }) => running.stop()))),
    };
  },
};
