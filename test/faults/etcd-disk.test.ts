import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { EngineUnavailableError } from "../../src/core/errors.js";
import { etcdClient } from "../../src/engines/etcd/index.js";
import { until } from "../servers/process.js";
import { locksOn, ownCluster, states } from "./etcd-rig.js";

type Disk = { readonly folder: string; freeze(seconds: number): { readonly frozen: boolean }; remove(): void };

/** A file system of its own, in a file; null where making one is not allowed. */
function makeDisk(): Disk | null {
  const place = mkdtempSync(join(tmpdir(), "holdfast-disk-"));
  const [image, folder] = [join(place, "image"), join(place, "mounted")];
  const quietly = { stdio: "ignore", timeout: 20_000 } as const;
  try {
    execFileSync("truncate", ["--size=256M", image], quietly);
    execFileSync("mkfs.ext4", ["-q", "-F", image], quietly);
    execFileSync("mkdir", [folder], quietly);
    execFileSync("mount", ["-o", "loop", image, folder], quietly);
  } catch {
    rmSync(place, { recursive: true });
    return null;
  }
  return {
    folder,
    // It thaws by itself, whatever becomes of the test.
    freeze: (seconds) => {
      execFileSync("fsfreeze", ["--freeze", folder], quietly);
      const words = ["-c", `sleep ${seconds}; fsfreeze --unfreeze "$0"`, folder];
      const thawing = spawn("sh", words, { detached: true, stdio: "ignore" });
      const disk = { frozen: true };
      thawing.once("exit", () => (disk.frozen = false));
      return disk;
    },
    remove: () => {
      execFileSync("umount", [folder], quietly);
      rmSync(place, { recursive: true });
    },
  };
}

const disk = makeDisk();

test.skipIf(disk === null)(
  "pitfall 51: a disk hangs: keep-alives are answered and not believed, and work goes on when it is back",
  async () => {
    if (disk === null) throw new Error("invariant: skipped without a disk");
    onTestFinished(() => disk.remove());
    const server = await ownCluster(1, ["--wal-dir", join(disk.folder, "wal")]);
    const options = { leaseMs: 3000, callTimeoutMs: 5000 };
    const [locks, other] = [await locksOn(server.url, options), await locksOn(server.url, options)];
    const client = await etcdClient(server.url);
    onTestFinished(() => client.close());
    const { ID } = await client.call("leaseGrant", { TTL: 60 });
    const hold = await locks.mutex("held").acquire();
    const start = performance.now();
    const hanging = disk.freeze(15);
    // The first write stops the quorum of one; what is asked after it waits behind it.
    await expect(other.mutex("written").acquire({ waitMs: 1000 })).rejects.toThrow(EngineUnavailableError);
    await until("the holder is told", () => hold.state === "lost");
    expect(hanging.frozen, "when its lease is over by its own clock, not when the disk is back").toBe(true);
    expect((await client.keepAlive(ID)).TTL, "which etcd would go on prolonging").toBe(60);
    const next = await other.mutex("held").acquire({ waitMs: 60_000 });
    expect(performance.now() - start, "not before it is back").toBeGreaterThan(14_000);
    expect(next.token).toBeGreaterThan(hold.token);
    await next.release();
    const gone = async (): Promise<boolean> => (await states(other, { name: "written" })).length === 0;
    await until("what was given up while it hung has left", gone);
  },
  120_000,
);
