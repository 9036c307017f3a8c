import { posix } from "node:path";

/** The calls of `node:fs/promises` that the file fence makes, over a file system in memory. */
type File = { kind: "file"; data: string; onDisk: string | null; mode: number };
type Folder = {
  kind: "folder";
  entries: Map<string, Node>;
  /** What a loss of power leaves for certain, and the changes since then, of which it leaves the first few. */
  onDisk: Map<string, Node>;
  unsynced: (readonly [name: string, node: Node | null])[];
};
type Node = File | Folder;

/** What the next step of one of the writers is; the scheduler chooses among those that are pending. */
export type Pending = { readonly writer: number; readonly what: string; readonly go: () => void };

/** One run: a file system, the writers that use it, and how far they are. */
export class Disk {
  /** Null: nobody schedules, every call is done at once. */
  scheduled = false;
  readonly pending: Pending[] = [];
  /** Every change of the file itself, in order. */
  readonly contents: string[] = [];
  /** Calls made so far, those that need no turn among them. */
  calls = 0;
  /** The call at which the power goes; nothing is answered from then on. */
  powerUntil = Infinity;
  readonly crashed = new Set<number>();
  #root: Folder = folder();

  constructor(readonly file: string) {
    this.#root.entries.set(posix.dirname(file).slice(1), folder());
    for (const [name, node] of this.#root.entries) this.#root.onDisk.set(name, node);
  }

  at(path: string): Node | undefined {
    let node: Node | undefined = this.#root;
    for (const part of path.split("/").filter(Boolean)) {
      node = node?.kind === "folder" ? node.entries.get(part) : undefined;
    }
    return node;
  }

  parent(path: string): Folder {
    const node = this.at(posix.dirname(path));
    if (node?.kind !== "folder") throw failure("ENOENT", path);
    return node;
  }

  list(path: string): string[] {
    const node = this.at(path);
    return node?.kind === "folder" ? [...node.entries.keys()] : [];
  }

  set(path: string, node: Node | null): void {
    const parent = this.parent(path);
    const name = posix.basename(path);
    if (node === null) parent.entries.delete(name);
    else parent.entries.set(name, node);
    parent.unsynced.push([name, node]);
    if (path === this.file && node?.kind === "file") this.contents.push(node.data);
  }

  /**
   * The power goes and comes back. Of each folder the changes that were not synced survive up to some point, in their order, and each
   * folder for itself; of a file what was synced, and the rest or nothing.
   */
  losePower(survive: (changes: number) => number, contentSurvives: boolean): void {
    const visit = (node: Node): void => {
      if (node.kind === "file") {
        if (!contentSurvives) node.data = node.onDisk ?? "";
        return;
      }
      const names = new Map(node.onDisk);
      for (const [name, child] of node.unsynced.slice(0, survive(node.unsynced.length))) {
        if (child === null) names.delete(name);
        else names.set(name, child);
      }
      node.entries = names;
      node.onDisk = new Map(names);
      node.unsynced = [];
      for (const child of names.values()) visit(child);
    };
    visit(this.#root);
    this.scheduled = false;
    this.powerUntil = Infinity;
    this.pending.length = 0;
  }
}

function folder(): Folder {
  return { kind: "folder", entries: new Map(), onDisk: new Map(), unsynced: [] };
}

function failure(code: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${path}`), { code });
}

/** Whose calls these are. One process runs at a time, until it has nothing left to do but wait for its turn. */
let running: { readonly disk: Disk; readonly writer: number } | null = null;

/** Ticks of the microtask queue without a call after which a process is taken to wait. */
const IDLE_TICKS = 24;

/** Runs one process on this disk for as long as it can go on. */
export async function advance(disk: Disk, writer: number, go: () => void): Promise<void> {
  running = { disk, writer };
  go();
  let seen = -1;
  for (let idle = 0; idle < IDLE_TICKS; idle += 1) {
    const now = disk.calls + disk.pending.length;
    if (now !== seen) idle = 0;
    seen = now;
    await Promise.resolve();
  }
  running = null;
}

/** One call, done at once when it is its turn. Calls that only its own process can notice need none. */
function call<T>(what: string, shared: boolean, run: (disk: Disk) => T): Promise<T> {
  if (running === null) throw new Error("invariant: a call outside of a run");
  const { disk, writer } = running;
  return new Promise((resolve, reject) => {
    const go = (): void => {
      disk.calls += 1;
      if (disk.calls > disk.powerUntil || disk.crashed.has(writer)) return;
      try {
        resolve(run(disk));
      } catch (error) {
        reject(error);
      }
    };
    if (shared && disk.scheduled) disk.pending.push({ writer, what, go });
    else go();
  });
}

function nodeAt(disk: Disk, path: string): Node {
  const node = disk.at(path);
  if (node === undefined) throw failure("ENOENT", path);
  return node;
}

const base = (path: string): string => posix.basename(path);

const realpath = (path: string) => call("realpath", false, (disk) => (nodeAt(disk, path), path));

const readlink = (path: string) =>
  call("readlink", false, (disk): string => {
    nodeAt(disk, path);
    throw failure("EINVAL", path);
  });

const lstat = (path: string) =>
  call("lstat", false, (disk) => {
    const node = nodeAt(disk, path);
    return { mode: node.kind === "file" ? node.mode : 0o755, isDirectory: () => node.kind === "folder" };
  });

const mkdir = (path: string, _options: { recursive: true }) =>
  call("mkdir", false, (disk) => {
    if (disk.at(path) !== undefined) return undefined;
    disk.set(path, folder());
    return path;
  });

/**
 * A listing takes two steps. What comes or goes in between may be missing from it: here it always is, the worst for a writer
 * that checks markers.
 */
async function readdir(path: string): Promise<string[]> {
  const before = await call("begin to list", true, (disk) => (nodeAt(disk, path), disk.list(path)));
  const after = await call("end to list", true, (disk) => new Set(disk.list(path)));
  return before.filter((name) => after.has(name));
}

const link = (from: string, to: string) =>
  call(`link ${base(from)} ${base(to)}`, true, (disk) => {
    const node = nodeAt(disk, from);
    if (disk.at(to) !== undefined) throw failure("EEXIST", to);
    disk.set(to, node);
  });

const rename = (from: string, to: string) =>
  call(`rename ${base(from)} ${base(to)}`, true, (disk) => {
    const node = nodeAt(disk, from);
    disk.set(to, node);
    disk.set(from, null);
  });

const rm = (path: string, _options: { force: true }) =>
  call(`remove ${base(path)}`, true, (disk) => {
    if (disk.at(path) !== undefined) disk.set(path, null);
  });

async function open(path: string, flags: string | number) {
  const makes = flags === "wx";
  const node = await call(`${makes ? "make" : "open"} ${base(path)}`, makes || typeof flags === "number", (disk) => {
    const there = disk.at(path);
    if (!makes) return nodeAt(disk, path);
    if (there !== undefined) throw failure("EEXIST", path);
    const made: Node = { kind: "file", data: "", onDisk: null, mode: 0o644 };
    disk.set(path, made);
    return made;
  });
  return {
    chmod: (mode: number) => call("chmod", false, () => void Object.assign(node, { mode })),
    writeFile: (data: string) => call("write", false, () => void Object.assign(node, { data })),
    readFile: () => call("read", false, () => (node.kind === "file" ? node.data : "")),
    stat: () => call("fstat", false, () => ({ isFile: () => node.kind === "file" })),
    close: () => call("close", false, () => {}),
    sync: () =>
      call("sync", false, () => {
        if (node.kind === "file") node.onDisk = node.data;
        else Object.assign(node, { onDisk: new Map(node.entries), unsynced: [] });
      }),
  };
}

/** In place of `node:fs/promises`. */
export const calls = { link, lstat, mkdir, open, readdir, readlink, realpath, rename, rm, stat: lstat };
