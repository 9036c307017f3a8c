// What a server of our own needs: a port that nobody listens on and a folder for its data.
import { existsSync, mkdtempSync, statfsSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function freePort() {
  return new Promise((resolve) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

/** In memory where there is room: a server that waits for its disk with each write measures the disk. */
export function newFolder(onDisk = false) {
  return mkdtempSync(join(onDisk || !hasRoom("/dev/shm") ? tmpdir() : "/dev/shm", "holdfast-bench-"));
}

function hasRoom(path) {
  if (!existsSync(path)) return false;
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize > 2 ** 31;
}
