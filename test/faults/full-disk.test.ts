import { execFileSync } from "node:child_process";
import {
  chownSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  unlinkSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { connect } from "../../src/connect.js";
import { EngineUnavailableError } from "../../src/core/errors.js";
import type { Locks } from "../../src/locks.js";
import { restart, startEtcd } from "../servers/etcd.js";
import { query as askMariadb, startMariadb } from "../servers/mariadb.js";
import { query as askPostgres, startPostgres } from "../servers/postgres.js";
import { until } from "../servers/process.js";
import { startZooKeeper } from "../servers/zookeeper.js";
import { renewed, waiters } from "./rig.js";

/** The file system in which a server keeps its data is full, until somebody makes room. SQLite's is in process/sqlite.test.ts. */

const MIB = 2 ** 20;
const quietly = { stdio: "ignore", timeout: 20_000 } as const;

function mount(folder: string, bytes: number): void {
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", folder], quietly);
}

function canMount(): boolean {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-mount-"));
  try {
    mount(folder, MIB);
    execFileSync("umount", [folder], quietly);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

type Disk = { readonly folder: string; fill(): void; makeRoom(): void };

function smallDisk(folder: string, bytes: number, user?: string): Disk {
  mkdirSync(folder, { recursive: true });
  mount(folder, bytes);
  onTestFinished(() => void execFileSync("umount", ["--lazy", folder], quietly));
  if (user !== undefined) {
    const id = (flag: string): number => Number(execFileSync("id", [flag, user], { encoding: "utf8" }));
    chownSync(folder, id("-u"), id("-g"));
  }
  const filler = join(folder, "filler");
  return {
    folder,
    fill() {
      const file = openSync(filler, "w");
      const { bfree, bsize } = statfsSync(folder);
      for (let n = 0; n < bfree; n += 1) writeSync(file, Buffer.alloc(bsize));
      closeSync(file);
    },
    makeRoom: () => unlinkSync(filler),
  };
}

/** Removed when nothing is mounted there any more. */
function ownFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function locksOn(url: string): Promise<Locks> {
  const locks = await connect(url, { leaseMs: 6_000 });
  onTestFinished(() => locks.close());
  return locks;
}

/** Claims of ever more names, until one is told that it cannot be had. */
async function untilUnavailable(locks: Locks): Promise<unknown> {
  for (let n = 0; n < 200; n += 1) {
    const names = Array.from({ length: 16 }, (_, k) => `${n * 16 + k}`.padStart(500, "x"));
    const all = await Promise.allSettled(names.map((name) => locks.mutex(name).acquire({ waitMs: 1000 })));
    for (const one of all) if (one.status === "rejected") return one.reason;
  }
  throw new Error("there is always room");
}

type Rig = { readonly url: string; readonly disk: Disk };
type MortalRig = Rig & { readonly pid: () => number; readonly restart: () => Promise<void> };

const SQL: Readonly<Record<string, () => Promise<Rig>>> = {
  async PostgreSQL() {
    const server = await startPostgres();
    onTestFinished(() => server.running.stop());
    const disk = smallDisk(join(server.folder, "small"), 2 * MIB, "postgres");
    await askPostgres(server.url, `CREATE TABLESPACE small LOCATION '${disk.folder}'`);
    await askPostgres(server.url, "ALTER DATABASE postgres SET default_tablespace = small");
    return { url: server.url, disk };
  },
  async MariaDB() {
    const server = await startMariadb();
    onTestFinished(() => server.running.stop());
    await askMariadb(server.url, "CREATE DATABASE holdfast");
    return { url: server.url, disk: smallDisk(join(server.folder, "data", "holdfast"), 4 * MIB, "mysql") };
  },
};

/** These end when they cannot write. */
const OTHERS: Readonly<Record<string, () => Promise<MortalRig>>> = {
  async ZooKeeper() {
    const folder = ownFolder();
    const disk = smallDisk(join(folder, "small"), 2 * MIB);
    const properties = { "zookeeper.preAllocSize": "16" };
    const server = await startZooKeeper({ folder, lines: [`dataLogDir=${disk.folder}`], properties });
    onTestFinished(() => server.running.end());
    return {
      url: `zookeeper://127.0.0.1:${server.port}`,
      disk,
      pid: () => server.running.pid,
      restart: () => server.restart(),
    };
  },
  async etcd() {
    const folder = ownFolder();
    const disk = smallDisk(join(folder, "small"), 4 * MIB);
    const cluster = await startEtcd(1, ["--data-dir", disk.folder, "--wal-dir", join(folder, "wal")]);
    onTestFinished(() => cluster.stop());
    const [member] = cluster.members;
    if (member === undefined) throw new Error("invariant: one member");
    return { url: cluster.url, disk, pid: () => member.running.pid, restart: () => restart(member) };
  },
};

// Needs the right to mount file systems.
describe.skipIf(!canMount())("a full disk", () => {
  test.each(Object.entries(SQL))(
    "%s: who holds keeps its lock, what is given back passes on, what is new waits for room",
    { timeout: 120_000 },
    async (_, start) => {
      const { url, disk } = await start();
      const [one, two] = [await locksOn(url), await locksOn(url)];
      const hold = await one.mutex("held").acquire();
      const next = two.mutex("held").acquire();
      await until("it waits", async () => (await waiters(one, "held")) === 1);
      disk.fill();
      const unavailable = await untilUnavailable(two);
      expect(unavailable).toBeInstanceOf(EngineUnavailableError);
      expect(String(unavailable)).toMatch(/disk is full; free some space/);
      await renewed(one, 4);
      expect(hold.state).toBe("held");
      await hold.release();
      const held = await next;
      const waiting = one.mutex("waits for room".padStart(500, "x")).acquire();
      await renewed(two, 2);
      expect(held.state).toBe("held");
      disk.makeRoom();
      await (await waiting).release();
      await held.release();
    },
  );

  test.each(Object.entries(OTHERS))(
    "%s: the server ends; when there is room and it runs again, who held holds and who waited is next",
    { timeout: 120_000 },
    async (_, start) => {
      const { url, disk, pid, restart } = await start();
      const [one, two] = [await locksOn(url), await locksOn(url)];
      const hold = await one.mutex("held").acquire();
      const next = two.mutex("held").acquire();
      await until("it waits", async () => (await waiters(one, "held")) === 1);
      disk.fill();
      expect(await untilUnavailable(two)).toBeInstanceOf(EngineUnavailableError);
      await until("the server has ended by itself", () => !isAlive(pid()));
      disk.makeRoom();
      await restart();
      await renewed(one, 1);
      expect(hold.state).toBe("held");
      await hold.release();
      await (await next).release();
    },
  );
});
