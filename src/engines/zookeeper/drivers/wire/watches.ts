import type { Watcher } from "../../driver.js";

/** `node`: set by reading it; `presence`: by asking whether it exists; `children`: by listing them. */
export type WatchKind = "node" | "presence" | "children";

const CREATED = 1;
const DELETED = 2;
const CHANGED = 3;
const CHILDREN = 4;

const KINDS: Readonly<Record<number, readonly WatchKind[]>> = {
  [CREATED]: ["node", "presence"],
  [CHANGED]: ["node", "presence"],
  [DELETED]: ["node", "presence", "children"],
  [CHILDREN]: ["children"],
};

/** Whom to tell. The server keeps one watch per session, path and kind, and tells of one change. */
export class Watches {
  readonly #watchers: Readonly<Record<WatchKind, Map<string, Set<Watcher>>>> = {
    node: new Map(),
    presence: new Map(),
    children: new Map(),
  };

  has(kind: WatchKind, path: string): boolean {
    return this.#watchers[kind].has(path);
  }

  /** Before it is asked for: the first event may come in one piece with the answer. */
  add(kind: WatchKind, path: string, watcher: Watcher): void {
    const paths = this.#watchers[kind];
    const watchers = paths.get(path);
    if (watchers === undefined) paths.set(path, new Set([watcher]));
    else watchers.add(watcher);
  }

  /** True when nobody is left and the server need not watch any more. */
  remove(kind: WatchKind, path: string, watcher: Watcher): boolean {
    const paths = this.#watchers[kind];
    const watchers = paths.get(path);
    if (!watchers?.delete(watcher) || watchers.size > 0) return false;
    paths.delete(path);
    return true;
  }

  /** The node whose presence was asked for is there: from now on its removal is told, also after a reconnection. */
  found(path: string, watcher: Watcher): void {
    if (!this.#watchers.presence.get(path)?.has(watcher)) return;
    this.remove("presence", path, watcher);
    this.add("node", path, watcher);
  }

  changed(type: number, path: string): void {
    const told = new Set<Watcher>();
    for (const kind of KINDS[type] ?? []) {
      for (const watcher of this.#watchers[kind].get(path) ?? []) told.add(watcher);
      this.#watchers[kind].delete(path);
    }
    for (const watcher of told) watcher(type === DELETED);
  }

  paths(kind: WatchKind): string[] {
    return [...this.#watchers[kind].keys()];
  }

  clear(): void {
    for (const paths of Object.values(this.#watchers)) paths.clear();
  }
}
