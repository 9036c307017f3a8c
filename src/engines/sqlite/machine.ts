// Beside the usual files: what the engine asks of the operating system.
import { execFileSync } from "node:child_process";
import { readFileSync, readlinkSync, statfsSync, statSync, watch } from "node:fs";

/** The machine that this engine runs on; passed in, so that a test can be another one. */
export interface Machine {
  /** Milliseconds of a clock that nobody can set, the same for all processes of one boot. */
  now(): number;
  /** Which boot that clock belongs to: times of another one cannot be compared. */
  readonly boot: string;
  /** This process, as `namespace pid start`; empty when others cannot tell whether it lives. */
  readonly process: string;
  /**
   * Whether this process has certainly ended. False where it cannot be known: another PID namespace numbers its processes
   * differently, and only the lease decides (`docs/internals/pitfalls.md` 52). `thorough` also finds reused PIDs and
   * zombies; without it the answer costs one system call.
   */
  hasEnded(process: string, thorough: boolean): boolean;
  /** The kind of network file system that holds this folder; null for a local one. */
  networkFileSystem(folder: string): string | null;
  /**
   * Tells of every change of this file, until what it returns is called. Throws, or calls `failed`, where no more files
   * can be watched.
   */
  watch(path: string, changed: () => void, failed: () => void): () => void;
}

/** By the magic numbers of statfs(2). Locks and shared memory of such mounts do not bind other machines. */
const NETWORK: ReadonlyMap<number, string> = new Map([
  [0x6969, "nfs"],
  [0x517b, "smb"],
  [0xff534d42, "cifs"],
  [0xfe534d42, "smb2"],
  [0x01021997, "9p"],
  [0x00c36400, "ceph"],
  [0x5346414f, "afs"],
  [0x73757245, "coda"],
  [0x0bd00bd0, "lustre"],
  [0x47504653, "gpfs"],
  [0x01161970, "gfs2"],
  [0x7461636f, "ocfs2"],
  [0x19830326, "fhgfs"],
]);
const FUSE = 0x65735546;
/** File systems in user space that are local: everything else behind FUSE (sshfs, virtiofs, s3fs, …) is not trusted. */
const FUSE_LOCAL: ReadonlySet<string> = new Set(["fuseblk", "fuse.fuse-overlayfs", "fuse.overlayfs", "fuse.mergerfs"]);

export class ThisMachine implements Machine {
  readonly boot = bootOf();
  readonly #namespace = namespaceOf();
  /** False when /proc shows another PID namespace than ours: its numbers are then other processes. */
  readonly #procIsOurs = tryRead(() => readlinkSync("/proc/self")) === String(process.pid);
  readonly process: string;

  /** `pid`: the process with which the claims made here end, when that is not this one. */
  constructor(pid = process.pid) {
    const shown = pid === process.pid ? "self" : this.#procIsOurs ? String(pid) : "none";
    const start = this.#start(shown)?.start ?? 0;
    this.process = this.#namespace === "" ? "" : `${this.#namespace} ${pid} ${start}`;
  }

  now(): number {
    const [seconds, nanos] = process.hrtime();
    return seconds * 1000 + nanos / 1e6;
  }

  hasEnded(other: string, thorough: boolean): boolean {
    if (other === "" || other === this.process) return false;
    const [namespace, pidText, startText] = other.split(" ");
    const pid = Number(pidText);
    if (namespace !== this.#namespace || !Number.isSafeInteger(pid) || pid <= 0) return false;
    try {
      process.kill(pid, 0);
    } catch (error) {
      // Anything else (not ours to signal) means that it is there.
      if ((error as NodeJS.ErrnoException).code === "ESRCH") return true;
    }
    if (!thorough || !this.#procIsOurs) return false;
    const seen = this.#start(pidText ?? "");
    // Hidden from us (hidepid), or gone this very moment: not certain.
    if (seen === null) return false;
    return seen.state === "Z" || seen.state === "X" || (startText !== "0" && String(seen.start) !== startText);
  }

  networkFileSystem(folder: string): string | null {
    if (process.platform !== "linux") return null;
    // The numbers are 32 bits, and some come back signed.
    const type = statfsSync(folder).type >>> 0;
    if (type !== FUSE) return NETWORK.get(type) ?? null;
    const kind = mountKind(folder);
    return FUSE_LOCAL.has(kind) ? null : kind;
  }

  watch(path: string, changed: () => void, failed: () => void): () => void {
    const watcher = watch(path, { persistent: false }, changed);
    watcher.on("error", failed);
    return () => watcher.close();
  }

  /** When it started, in ticks since boot, and how it is; null where /proc does not say. */
  #start(pid: string): { readonly state: string; readonly start: number } | null {
    const stat = tryRead(() => readFileSync(`/proc/${pid}/stat`, "utf8"));
    if (stat === null) return null;
    // The second field is the program's name in brackets, which may hold anything, also brackets and blanks.
    const rest = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return { state: rest[0] ?? "", start: Number(rest[19]) };
  }
}

/** Null where the system has no such file, or does not let us read it. */
function tryRead(read: () => string): string | null {
  try {
    return read().trim();
  } catch {
    return null;
  }
}

/** The time namespace belongs to it: its processes have a monotonic clock of their own. */
function bootOf(): string {
  if (process.platform === "linux") {
    const boot = tryRead(() => readFileSync("/proc/sys/kernel/random/boot_id", "utf8"));
    const time = tryRead(() => readlinkSync("/proc/self/ns/time"));
    if (boot !== null) return `${boot} ${time ?? "time:[]"}`;
  }
  if (process.platform === "darwin") {
    const options = { encoding: "utf8", timeout: 2000 } as const;
    const session = tryRead(() => execFileSync("/usr/sbin/sysctl", ["-n", "kern.bootsessionuuid"], options));
    if (session !== null && session !== "") return session;
  }
  // One name for all boots: a clock that started again is then found by leases that end later than they can.
  return "unknown";
}

function namespaceOf(): string {
  if (process.platform !== "linux") return process.platform;
  const link = tryRead(() => readlinkSync("/proc/self/ns/pid"));
  return /\d+/.exec(link ?? "")?.[0] ?? "";
}

function mountKind(folder: string): string {
  const { dev } = statSync(folder, { bigint: true });
  // As glibc takes a device number apart.
  const major = ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn);
  const minor = (dev & 0xffn) | ((dev >> 12n) & ~0xffn);
  const mounts = tryRead(() => readFileSync("/proc/self/mountinfo", "utf8")) ?? "";
  for (const line of mounts.split("\n")) {
    const [, , device] = line.split(" ", 3);
    if (device === `${major}:${minor}`) return / - (\S+) /.exec(line)?.[1] ?? "fuse";
  }
  return "fuse";
}
