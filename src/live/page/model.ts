import type { Deadlocks, HolderView, NameView, StatusView, StoreView, Update } from "../wire.js";

/** Holds that the timeline remembers. */
const SPANS_MAX = 2_000;

/** One hold, as it was seen. Times are the server's. */
export type Span = {
  readonly name: string;
  readonly token: number;
  readonly holder: HolderView;
  readonly from: number;
  /** Null while it is held. */
  until: number | null;
  /** When this page saw it first, by the calendar. */
  readonly seenAt: Date;
  /** It was held already when the page opened, or after a time in which the page was not told. */
  readonly early: boolean;
};

export type Lease = { readonly until: number | null; readonly leaseMs: number | null };

/** Everything that the server told, put together. */
export class Model {
  readonly names = new Map<string, NameView>();
  readonly spans: Span[] = [];
  status: StatusView | null = null;
  store: StoreView | null = null;
  deadlocks: Deadlocks = [];
  mayRelease = false;
  /** The store was read, and the whole picture came. */
  complete = false;
  readonly #leases = new Map<number, Lease>();
  /** The holds that go on, by name. */
  readonly #open = new Map<string, Span[]>();
  /** While the whole picture comes: the names in it. */
  #listed: Set<string> | null = null;
  #offset = 0;
  #openedAt: number | null = null;

  /** Now, by the server's clock. */
  now(): number {
    return performance.now() + this.#offset;
  }

  /** When the page opened, by the server's clock. */
  get openedAt(): number {
    return this.#openedAt ?? this.now();
  }

  leaseOf(key: number): Lease | undefined {
    return this.#leases.get(key);
  }

  apply(update: Update): void {
    this.#offset = update.at - performance.now();
    this.#openedAt ??= update.at;
    this.status = update.status;
    if (update.reset) this.#listed = new Set();
    if (update.mayRelease !== undefined) this.mayRelease = update.mayRelease;
    if (update.deadlocks !== undefined) this.deadlocks = update.deadlocks;
    if (update.store !== undefined) this.store = update.store;
    for (const view of update.set ?? []) this.#set(view, update.at);
    for (const name of update.gone ?? []) this.#gone(name, update.at);
    for (const [key, until, leaseMs] of update.leases ?? []) this.#leases.set(key, { until, leaseMs });
    if (update.complete) this.#completed(update.at);
    if (this.#listed === null && update.status.tookMs !== null) this.complete = true;
  }

  #set(view: NameView, at: number): void {
    const early = !this.complete || this.#listed !== null;
    this.#forget(view.name);
    this.#listed?.add(view.name);
    this.names.set(view.name, view);
    for (const { key, until, leaseMs } of [...view.holders, ...view.waiters]) this.#leases.set(key, { until, leaseMs });
    this.#follow(view.name, view.holders, at, early);
  }

  #gone(name: string, at: number): void {
    this.#forget(name);
    this.names.delete(name);
    this.#follow(name, [], at, false);
  }

  #forget(name: string): void {
    const before = this.names.get(name);
    for (const { key } of [...(before?.holders ?? []), ...(before?.waiters ?? [])]) this.#leases.delete(key);
  }

  /** What the whole picture does not have is gone. */
  #completed(at: number): void {
    for (const name of this.#listed === null ? [] : this.names.keys()) {
      if (!this.#listed?.has(name)) this.#gone(name, at);
    }
    this.#listed = null;
  }

  /** Who holds now: others have ended, and new ones have begun. */
  #follow(name: string, holders: readonly HolderView[], at: number, early: boolean): void {
    const open = this.#open.get(name) ?? [];
    const tokens = new Set(holders.map(({ token }) => token));
    const go = open.filter(({ token }) => tokens.has(token));
    for (const span of open) if (!tokens.has(span.token)) span.until = at;
    for (const holder of holders) {
      const { token, since: from } = holder;
      if (open.some((span) => span.token === token)) continue;
      const span: Span = { name, token, holder, from, until: null, seenAt: new Date(), early };
      go.push(span);
      this.spans.push(span);
    }
    if (go.length > 0) this.#open.set(name, go);
    else this.#open.delete(name);
    if (this.spans.length > SPANS_MAX) this.spans.splice(0, this.spans.length - SPANS_MAX);
  }
}
