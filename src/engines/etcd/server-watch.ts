// Beyond the common files of an engine: one watch at the server serves all who listen to the same keys, also one after the other.

import type { Header, WatchEvent, WatchRequest, WatchResponse } from "./messages.js";

export type Watch = {
  readonly key: string;
  readonly range_end?: string;
  /** The first revision to be told of; without it, what comes from now on. */
  readonly start_revision?: number;
  /**
   * What happened from `start_revision` on, before the server began to tell, has to be read. A watch that says so begins with
   * what comes from now on: at one that begins in the past, as each does on a busy server, etcd looks ten times a second (52 ms late on
   * average, instead of 0.1).
   */
  readonly missed?: () => void;
  readonly heard: (events: readonly WatchEvent[], header: Header) => void;
  /** It hears nothing any more: read the key, and watch again. */
  readonly broken: () => void;
};

/** So much of what was told is kept for who listens later. */
const TOLD_MAX = 4;

/** So much may be told to nobody: a key that contenders use again is taken and left a few times before it is somebody's predecessor once more. */
const UNHEARD_MAX = 10;

type Told = Pick<WatchResponse, "events" | "header">;

/**
 * A watch tells everything in order from the revision on at which it begins. So it serves who wants to know of what comes after a
 * later revision, too: what was told of that already is told again.
 */
export class ServerWatch {
  readonly id: number;
  readonly range: string;
  readonly request: NonNullable<WatchRequest["create_request"]>;
  readonly #listeners = new Set<Watch>();
  #told: Told[] = [];
  #unheard = 0;
  /** From this revision on all of it was told, and is kept here, or will be. Null: the server has not said yet. */
  #from: number | null;

  constructor(id: number, watch: Watch) {
    const { key, range_end, start_revision, missed } = watch;
    this.id = id;
    this.range = rangeOf(watch);
    const range = range_end === undefined ? {} : { range_end };
    const start = start_revision === undefined || missed !== undefined ? {} : { start_revision };
    this.request = { key, watch_id: id, ...range, ...start };
    this.#from = start.start_revision ?? null;
  }

  get listeners(): readonly Watch[] {
    return [...this.#listeners];
  }

  get isIdle(): boolean {
    return this.#listeners.size === 0;
  }

  /** It costs more than it is worth. */
  get isNeedless(): boolean {
    return this.isIdle && this.#unheard > UNHEARD_MAX;
  }

  /** Whether it tells all of that, or says that something was missed. */
  serves({ start_revision, missed }: Watch): boolean {
    if (start_revision === undefined) return false;
    return missed !== undefined || (this.#from !== null && start_revision >= this.#from);
  }

  add(watch: Watch): void {
    this.#listeners.add(watch);
    this.#unheard = 0;
    if (this.#from === null || watch.start_revision === undefined) return;
    // Whoever asks does not expect to be told before it has this watch in its hand.
    const told = watch.start_revision >= this.#from ? this.#told : null;
    if (told?.length === 0) return;
    queueMicrotask(() => {
      if (told === null) this.#miss(watch);
      else for (const one of told) this.#tell(watch, one);
    });
  }

  delete(watch: Watch): boolean {
    return this.#listeners.delete(watch);
  }

  /** The server tells what comes after this revision, unless it was asked for more. */
  begun(revision: number): void {
    this.#from ??= revision + 1;
    for (const watch of this.listeners) if (revision >= (watch.start_revision ?? Infinity)) this.#miss(watch);
  }

  heard({ events, header }: WatchResponse): void {
    if (events.length === 0) return;
    const told = { events, header };
    if (this.isIdle) this.#unheard += 1;
    this.#told = [...this.#told, told];
    if (this.#told.length > TOLD_MAX) {
      const [first] = this.#told.splice(0, 1);
      for (const { kv } of first?.events ?? []) this.#from = Math.max(this.#from ?? 0, (kv?.mod_revision ?? 0) + 1);
    }
    for (const watch of this.listeners) this.#tell(watch, told);
  }

  #miss(watch: Watch): void {
    if (this.#listeners.has(watch)) watch.missed?.();
  }

  #tell(watch: Watch, { events, header }: Told): void {
    if (!this.#listeners.has(watch)) return;
    // Of a key, perhaps, that was another claim's then; a member that lags behind tells of that, too.
    const news = events.filter(({ kv }) => kv === undefined || kv.mod_revision >= (watch.start_revision ?? 0));
    if (news.length > 0) watch.heard(news, header);
  }
}

/** Two of them are the same keys. */
export function rangeOf({ key, range_end = "" }: Pick<Watch, "key" | "range_end">): string {
  return `${key}\0\0${range_end}`;
}
