import { readdirSync, readFileSync, readlinkSync } from "node:fs";

/** Whether a connection on this machine that comes from `port` belongs to this process: Linux knows. */
export function callsFrom(pid: number, port: number): boolean {
  const local = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  const lines = readFileSync("/proc/net/tcp", "utf8").split("\n").slice(1);
  const ends = lines.flatMap((text) => {
    const [, address = "", , , , , , , , inode = ""] = text.trim().split(/\s+/);
    return address.endsWith(local) && inode !== "0" ? [`socket:[${inode}]`] : [];
  });
  const inodes = new Set(ends);
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).some((file) => {
    try {
      return inodes.has(readlinkSync(`${folder}/${file}`));
    } catch {
      // Closed meanwhile.
      return false;
    }
  });
}
