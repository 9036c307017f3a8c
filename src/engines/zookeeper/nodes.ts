// Beyond the common files of an engine: all verbs share paths, contents and folders of nodes, and what was read of them once.

import type { ClaimRef, ClaimRequest } from "../../core/engine.js";
import { isOwner, unknownOwner } from "../../core/inspect.js";
import { TOMBSTONE_MS } from "../../core/limits.js";
import { parseCapacity } from "../../queue/capacity.js";
import { type Known, Queue, type QueueEntry } from "../../queue/queue.js";
import { Readings } from "../../queue/readings.js";
import type { Children, Created, Stat, Watcher } from "./driver.js";
import { CODE, hasCode } from "./errors.js";
import { type Folders, FollowedQueues } from "./followed.js";
import { entryOf, escaped, folderOf, isOrdered, keyOf, type NodeNames } from "./node-names.js";
import type { Session } from "./session.js";

/** The nodes of a name that were read once. `made`: by which transaction the folder was; in another the numbers begin anew. */
type Folder = { made: number | null; readonly nodes: Map<string, Known> };

const EMPTY = Buffer.alloc(0);
const ANY_VERSION = -1;
/** Of so many names nodes are not read again: owner and token stay what they are. */
const NAMES_MAX = 1_000;
/** A parent may be removed by the server between its creation and ours, but not again and again. */
const PARENT_TRIES = 5;
const FEW = 16;
/** Of a text by another library. */
const TEXT_MAX_BYTES = 1_024;
/** So many tombstones of this client stand at most: the oldest goes for one more. */
const TOMBSTONES_MAX = 1_000;

/** The claims under one name. */
export type NodeQueue = Queue;

/** The nodes behind the names: paths, what is in them, and how they come and go. */
export class Nodes {
  readonly session: Session;
  readonly base: string;
  readonly names: NodeNames;
  readonly followed: FollowedQueues;
  readonly #known = new Map<string, Folder>();
  /** By the paths of nodes that are being read: all who ask meanwhile want to know the same. */
  readonly #knowing = new Map<string, Promise<Known | null>>();
  readonly #tombstones = new Set<string>();
  /** The paths of this client's claims whose end is told. */
  readonly #watched = new Set<string>();
  readonly #readings = new Readings<string, NodeQueue>(async (names) => {
    const queue = await this.queue(names[0] ?? "");
    return names.map(() => queue);
  });

  constructor(session: Session, base: string, names: NodeNames = "curator") {
    this.session = session;
    this.base = base;
    this.names = names;
    this.followed = new FollowedQueues(session, (path) => this.#watched.has(path));
  }

  pathOf(name: string): string {
    return `${this.base}/${escaped(name)}`;
  }

  nodePath(name: string, node: string): string {
    return `${this.pathOf(name)}/${node}`;
  }

  /** Beside the queue, so that nobody who lists a queue reads them. */
  #tombstonesOf(name: string): string {
    return `${this.base}/~tombstones/${escaped(name)}`;
  }

  foldersOf(name: string): Folders {
    return { claims: this.pathOf(name), tombstones: this.#tombstonesOf(name) };
  }

  /** A name's queue, as this server knows it: it may lag, and shows at least what this session did. */
  async queue(name: string, watcher?: Watcher): Promise<NodeQueue> {
    const parent = this.pathOf(name);
    const followed = this.#known.has(name) ? this.followed.follow(this.foldersOf(name)) : undefined;
    const { generation, next = 0 } = followed ?? {};
    const list = await this.session.read((client) => client.children(parent, watcher));
    this.#tidy(name, list);
    const queue = await this.#withCapacity(name, list?.names ?? [], list?.stat);
    const plain = list?.stat.version === 0 && isOrdered(queue.entries);
    if (plain && followed?.generation === generation) followed?.read(queue.entries, next);
    return queue;
  }

  /** The same, shared by all claims of the name that ask in this turn of the event loop. */
  sharedQueue(name: string): Promise<NodeQueue> {
    return this.#readings.one(name, name);
  }

  /** The queue as it is: a write comes first, for this server may lag behind what another client was told. */
  async queueNow(name: string): Promise<NodeQueue> {
    const [, queue] = await Promise.all([this.session.write((client) => client.confirm([])), this.queue(name)]);
    return queue;
  }

  /**
   * Creates a claim's node at the end of the queue. The queue with it is read in the same round trip, and so is whether the claim
   * has a tombstone, unless both are known without that.
   */
  async append({ name, id }: ClaimRef, prefix: string, content: Buffer): Promise<Appended> {
    const parent = this.pathOf(name);
    for (let tries = 1; ; tries += 1) {
      const followed = this.followed.get(parent);
      const before = followed?.generation;
      const knows = followed !== undefined && followed.isKnown && followed.coming === 0;
      const unburied = followed !== undefined && !followed.buried;
      if (followed !== undefined) followed.coming += 1;
      const creating = this.session.write((client) =>
        client.create(`${parent}/${prefix}`, content, "ephemeral-sequential"),
      );
      const reading = knows ? null : this.sharedQueue(name);
      const looking = unburied ? null : this.hasTombstone(name, id);
      // Whoever awaits them is told; without the node nobody does.
      for (const one of [reading, looking]) one?.catch(() => {});
      try {
        const created = await creating;
        const now = this.followed.get(parent);
        const entry = entryOf(created.path.slice(parent.length + 1));
        const isKnown = entry !== null && now?.add(entry);
        // Nothing that is watched has changed since: the session would have heard of it before.
        const same = now !== undefined && now === followed && now.generation === before;
        const known = same && isKnown ? Promise.resolve(new Queue(now.entries, null, false)) : null;
        const queue = reading ?? known ?? this.sharedQueue(name);
        const buried = looking ?? (same ? Promise.resolve(false) : this.hasTombstone(name, id));
        return { created, queue, buried };
      } catch (error) {
        if (!hasCode(error, CODE.noNode) || tries === PARENT_TRIES) throw error;
        await this.makeFolder(parent);
      } finally {
        if (followed !== undefined) followed.coming -= 1;
      }
    }
  }

  /** The folders down to this one. The server removes each of them some time after its last child, unless the last is to stay. */
  async makeFolder(path: string, last: "container" | "persistent" = "container"): Promise<void> {
    const levels = path.split("/").slice(1);
    const make = (depth: number): Promise<unknown> =>
      this.session.write((client) =>
        client.create(`/${levels.slice(0, depth).join("/")}`, EMPTY, depth < levels.length ? "container" : last),
      );
    const outcome = await make(levels.length).catch((error: unknown) => error);
    if (!hasCode(outcome, CODE.noNode)) return ignoreExisting(outcome);
    const outcomes = await Promise.all(levels.map((_, index) => make(index + 1).catch((error: unknown) => error)));
    outcomes.forEach(ignoreExisting);
  }

  /** A node of ours that goes with our session, in a folder that may have to be made. False when it is there already. */
  async createOwn(folder: string, node: string, content: Buffer): Promise<boolean> {
    for (let tries = 1; ; tries += 1) {
      try {
        await this.session.write((client) => client.create(`${folder}/${node}`, content, "ephemeral"));
        return true;
      } catch (error) {
        if (hasCode(error, CODE.nodeExists)) return false;
        if (!hasCode(error, CODE.noNode) || tries === PARENT_TRIES) throw error;
        await this.makeFolder(folder);
      }
    }
  }

  /**
   * Leaves a tombstone: a claim with this id that arrives later is gone (pitfall 54). It goes with our session, and so does
   * every copy of the claim that could still be under way. False when one was there before: somebody else released this claim.
   */
  async bury(name: string, id: string): Promise<boolean> {
    const folder = this.#tombstonesOf(name);
    const first = await this.createOwn(folder, escaped(id), EMPTY);
    const path = `${folder}/${escaped(id)}`;
    this.#tombstones.add(path);
    const [oldest = path] = this.#tombstones;
    if (this.#tombstones.size > TOMBSTONES_MAX) void this.#unearth(oldest);
    this.session.afterwards(TOMBSTONE_MS, () => this.#unearth(path));
    return first;
  }

  async #unearth(path: string): Promise<void> {
    if (this.#tombstones.delete(path)) await this.remove(path).catch(() => this.removeLater(path));
  }

  async hasTombstone(name: string, id: string): Promise<boolean> {
    const path = `${this.#tombstonesOf(name)}/${escaped(id)}`;
    return (await this.session.read((client) => client.exists(path))) !== null;
  }

  /** After the time for which late copies are harmless; without a connection then, once more as much later. */
  removeLater(path: string): void {
    this.session.afterwards(TOMBSTONE_MS, () => this.remove(path).catch(() => this.removeLater(path)));
  }

  /** An ephemeral node instead of another, in one step. */
  async replace(from: string, to: string, data: Buffer): Promise<void> {
    this.followed.get(folderOf(from))?.forget();
    const create = { kind: "create", path: to, data, mode: "ephemeral" } as const;
    const remove = { kind: "remove", path: from, version: ANY_VERSION } as const;
    await this.session.write((client) => client.transact([create, remove]));
  }

  /** False when it was not there. */
  async remove(path: string): Promise<boolean> {
    try {
      await this.session.write((client) => client.remove(path));
      this.#removed(path);
      return true;
    } catch (error) {
      if (!hasCode(error, CODE.noNode)) throw error;
      this.#removed(path);
      return false;
    }
  }

  #removed(path: string): void {
    this.#watched.delete(path);
    this.followed.get(folderOf(path))?.remove(keyOf(path));
  }

  /** A claim's node of ours: from now on its end is told, or is not. */
  watched(path: string, isWatched: boolean): void {
    if (isWatched) this.#watched.add(path);
    else this.#watched.delete(path);
    this.followed.get(folderOf(path))?.watch(keyOf(path), isWatched);
  }

  /** Null when it has left meanwhile. */
  async know(name: string, { key }: QueueEntry): Promise<Known | null> {
    const known = this.#known.get(name)?.nodes.get(key);
    if (known !== undefined) return known;
    const path = this.nodePath(name, key);
    const knowing = this.#knowing.get(path) ?? this.#read(name, key, path).finally(() => this.#knowing.delete(path));
    this.#knowing.set(path, knowing);
    return knowing;
  }

  async #read(name: string, key: string, path: string): Promise<Known | null> {
    const node = await this.session.read((client) => client.get(path));
    if (node === null) return null;
    const { czxid, ephemeralOwner } = node.stat;
    const unknown = { owner: unknownOwner(`session 0x${ephemeralOwner}`), token: czxid };
    return this.#remember(name, key, { ...unknown, ...contentOf(node.data) });
  }

  /** What we created ourselves need not be read. */
  knowOwn(claim: ClaimRequest, node: string, token: number): void {
    const { owner, leaseMs, data, exact } = claim;
    const more = { ...(data === undefined ? {} : { data }), ...(exact === true ? { exact } : {}) };
    this.#remember(claim.name, node, { owner, leaseMs, ...more, token });
  }

  #remember(name: string, node: string, known: Known): Known {
    const folder = this.#known.get(name) ?? { made: null, nodes: new Map<string, Known>() };
    folder.nodes.set(node, known);
    this.#keep(name, folder);
    return known;
  }

  /** The name that was added last is the last to go. */
  #keep(name: string, folder: Folder): void {
    this.#known.delete(name);
    this.#known.set(name, folder);
    const [oldest = ""] = this.#known.size > NAMES_MAX ? this.#known.keys() : [];
    this.#known.delete(oldest);
  }

  /** Those that left are not needed for long, and what was known of another folder of this name is of no use. */
  #tidy(name: string, list: Children | null): void {
    if (list === null) return void this.#known.delete(name);
    const folder = this.#known.get(name);
    const made = list.stat.czxid;
    // Also when nothing is known yet: what is read next belongs to this folder.
    if (folder === undefined || (folder.made ??= made) !== made) return this.#keep(name, { made, nodes: new Map() });
    if (folder.nodes.size <= 2 * list.names.length + FEW) return;
    const there = new Set(list.names);
    for (const node of folder.nodes.keys()) if (!there.has(node)) folder.nodes.delete(node);
  }

  /** In the order of arrival: by their numbers as long as those tell it, else by the transactions that created them. */
  async #inOrder(name: string, entries: readonly QueueEntry[]): Promise<readonly QueueEntry[]> {
    if (isOrdered(entries)) return entries.toSorted((one, two) => one.order - two.order);
    const known = await Promise.all(entries.map(async (entry) => ({ entry, known: await this.know(name, entry) })));
    return known
      .flatMap(({ entry, known }) => (known === null ? [] : [{ entry, token: known.token }]))
      .toSorted((one, two) => one.token - two.token)
      .map(({ entry }) => entry);
  }

  /** With the capacity that was set, if one was: the parent's data then has a version. */
  async #withCapacity(name: string, nodes: readonly string[], stat: Stat | undefined): Promise<NodeQueue> {
    const entries = await this.#inOrder(
      name,
      nodes.map(entryOf).filter((entry) => entry !== null),
    );
    const [first] = entries;
    if (stat === undefined || stat.version === 0 || first === undefined) return new Queue(entries);
    const [parent, oldest] = await Promise.all([
      this.session.read((client) => client.get(this.pathOf(name))),
      this.know(name, first),
    ]);
    // Something changed in between: read it again.
    if (parent === null || oldest === null || parent.stat.version !== stat.version) return this.queue(name);
    // It counts for the claims that were there then. Whoever was created after it states that capacity itself, or was refused.
    // A shrunk claim's node is younger than its token, but its position, and what it agreed to, are as old as that.
    const counts = oldest.token < parent.stat.mzxid;
    return new Queue(entries, counts ? parseCapacity(parent.data.toString()) : null);
  }
}

/** A claim's node, just created: the queue with it, and whether it was released before it came. */
type Appended = {
  readonly created: Created;
  readonly queue: Promise<NodeQueue>;
  readonly buried: Promise<boolean>;
};

export function contentBytes(claim: ClaimRequest, token?: number): Buffer {
  const { owner, leaseMs, data, exact } = claim;
  return Buffer.from(JSON.stringify({ owner, leaseMs, data, exact, token }));
}

/** Another library writes who takes part, as text. The token is that of a node which replaced the one that was granted. */
function contentOf(data: Buffer): Partial<Known> {
  const content = parsed(data);
  if (content === null) return data.length === 0 || data.length > TEXT_MAX_BYTES ? {} : { data: data.toString() };
  const { owner, leaseMs, data: text, exact, token } = content;
  return {
    ...(isOwner(owner) ? { owner } : {}),
    ...(typeof leaseMs === "number" ? { leaseMs } : {}),
    ...(typeof text === "string" ? { data: text } : {}),
    ...(exact === true ? { exact } : {}),
    ...(Number.isSafeInteger(token) ? { token: token as number } : {}),
  };
}

/** Null for what is not ours. */
function parsed(data: Buffer): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(data.toString());
    return typeof value === "object" ? (value as Record<string, unknown> | null) : null;
  } catch {
    return null;
  }
}

function ignoreExisting(outcome: unknown): void {
  if (outcome instanceof Error && !hasCode(outcome, CODE.nodeExists)) throw outcome;
}
