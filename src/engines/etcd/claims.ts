import type { Timer } from "../../core/clock.js";
import type { ClaimRef, EngineEvent } from "../../core/engine.js";
import { READERS_MAX } from "../../core/limits.js";
import type { Queue, Record, Target } from "./entries.js";
import type { Watches } from "./events.js";
import type { Keys } from "./keys.js";
import type { Lease, Leases } from "./leases.js";
import { DELETED, type Header, type RequestOp, type WatchEvent } from "./messages.js";
import { createdAt, remove, underLease } from "./requests.js";
import type { Slots } from "./slots.js";
import type { Store } from "./transactions.js";

/** A claim that stands under a lease of this engine, or may: it is written down before it is sent. */
export class Tracked {
  readonly name: string;
  readonly id: string;
  readonly place: Place;
  lease: Lease;
  /** How many of the oldest claims of its name show who holds. */
  limit = Infinity;
  /** 0 while the answer is not known. */
  token = 0;
  /** Requests under way that would hit whatever stands at its key: copies of the claim itself, and a removal without its token. */
  loose = 0;
  granted = false;
  /** Without another heartbeat it is taken out then, although the lease it shares may live on. */
  endsAt: number;
  /** Released, lost or ended: no answer that is still under way counts for it. */
  over = false;
  watchLater: Timer | null = null;
  unwatchOwn: (() => void) | null = null;
  unwatchTarget: (() => void) | null = null;
  /** The revision at which the last claim that stood in its way left, while it was there itself; 0 if that is not known. */
  clearSince = 0;
  /** A grant of it lists all live tokens. */
  exact = false;

  constructor({ name, id }: ClaimRef, place: Place, lease: Lease, sentAt: number) {
    this.name = name;
    this.id = id;
    this.place = place;
    this.lease = lease;
    this.endsAt = sentAt + lease.ttlMs;
  }

  get key(): string {
    return this.place.key;
  }

  /** Whether it is certain which of all that ever stand at its key it is. */
  get certain(): boolean {
    return this.token > 0 && this.loose === 0;
  }

  /** A heartbeat that is about to be sent. */
  sign(sentAt: number): void {
    this.endsAt = Math.max(this.endsAt, sentAt + this.lease.ttlMs);
  }

  /** How long it surely lives, counted from `since`: as long as its own time and the shared lease both last. */
  leftMs(since: number): number {
    return Math.min(this.endsAt, this.lease.provenUntil) - since;
  }
}

/** Where a claim stands. `slot`: one of this engine's; null where the key is its own for ever, or another engine's. */
export type Place = { readonly key: string; readonly slot: string | null };

/** Most holds end before it is worth the messages to watch them. */
const WATCH_AFTER_MS = 200;
const TRY_AGAIN_MS = 1_000;

/** The claims of this engine: their watches, and the end of those that nobody keeps alive. */
export class Book {
  readonly #store: Store;
  readonly #keys: Keys;
  readonly #slots: Slots;
  readonly #leases: Leases;
  readonly #watches: Watches;
  readonly #tell: (event: EngineEvent) => void;
  /** The claim's turn may have come. */
  readonly #look: (tracked: Tracked) => void;
  /** By name and id. */
  readonly #names = new Map<string, Map<string, Tracked>>();
  #timer: Timer | null = null;
  #timerAt = Infinity;
  #closed = false;

  constructor(
    store: Store,
    keys: Keys,
    slots: Slots,
    leases: Leases,
    watches: Watches,
    tell: (event: EngineEvent) => void,
    look: (tracked: Tracked) => void,
  ) {
    this.#store = store;
    this.#keys = keys;
    this.#slots = slots;
    this.#leases = leases;
    this.#watches = watches;
    this.#tell = tell;
    this.#look = look;
  }

  get({ name, id }: ClaimRef): Tracked | undefined {
    return this.#names.get(name)?.get(id);
  }

  /** `key`: where it stands, or is to stand; otherwise at the next free place of this engine. */
  track(ref: ClaimRef, lease: Lease, sentAt: number, key?: string): Tracked {
    const before = this.get(ref);
    // A copy of it may be under way: all of them are for the same key, so that only one can take it.
    const place = before?.place ?? (key === undefined ? this.#place(ref.name) : { key, slot: null });
    const tracked = new Tracked(ref, place, lease, sentAt);
    if (before !== undefined) {
      this.#drop(before);
      tracked.loose = before.loose;
    }
    this.#names.set(ref.name, (this.#names.get(ref.name) ?? new Map<string, Tracked>()).set(ref.id, tracked));
    this.#wakeAt(tracked.endsAt);
    return tracked;
  }

  #place(name: string): Place {
    const slot = this.#slots.take(name);
    return { key: this.#keys.claim(name, slot), slot };
  }

  /** Whether another claim of this engine stands under the same name, with the same capacity. */
  isBusy(tracked: Tracked): boolean {
    for (const other of this.#names.get(tracked.name)?.values() ?? []) {
      if (other !== tracked && !other.over && other.token > 0 && other.limit === tracked.limit) return true;
    }
    return false;
  }

  /** It stands under another lease from now on. */
  move(tracked: Tracked, lease: Lease, sentAt: number): void {
    this.#endAlone(tracked.lease);
    tracked.lease = lease;
    tracked.endsAt = sentAt + lease.ttlMs;
    this.#wakeAt(tracked.endsAt);
  }

  /** It is in the store: from a while on somebody watches over it. */
  stands(tracked: Tracked, token: number, granted: boolean, revision: number): void {
    tracked.token = token;
    tracked.granted ||= granted;
    if (granted) this.#unwatchTarget(tracked);
    if (tracked.over || tracked.unwatchOwn !== null || tracked.watchLater !== null || this.#closed) return;
    tracked.watchLater = this.#store.clock.after(WATCH_AFTER_MS, () => {
      tracked.watchLater = null;
      this.#watchOwn(tracked, revision + 1);
    });
  }

  #watchOwn(tracked: Tracked, start_revision: number): void {
    const { key } = tracked;
    const heard = (events: readonly WatchEvent[]): void => {
      if (tracked.over) return;
      if (events.some((event) => event.type === DELETED)) this.lost(tracked);
      // Somebody touched it: the capacity changed.
      else if (!tracked.granted) this.#look(tracked);
    };
    const broken = (): void => {
      tracked.unwatchOwn = null;
      this.#wake(tracked);
    };
    tracked.unwatchOwn = this.#watches.add({ key, start_revision, heard, broken });
  }

  /** Watch what the claim waits for, from the revision on at which it was found to be in the way. */
  watch(tracked: Tracked, target: Target, revision: number): void {
    this.#unwatchTarget(tracked);
    if (tracked.over || this.#closed) return;
    const heard = (all: readonly WatchEvent[], header: Header): void => {
      // Newcomers stand behind it, and whoever stands between the two keys of a range is none of them.
      const events = all.filter(({ type, kv }) => type === DELETED || kv?.create_revision !== kv?.mod_revision);
      const of = (key: string): readonly WatchEvent[] => events.filter(({ kv }) => kv?.key === key);
      const matter = target === "all" ? events : [...of(target.key), ...of(tracked.key)];
      if (matter.length === 0 || tracked.over) return;
      if (target !== "all" && target.last && of(tracked.key).length === 0 && this.#store.isSame(header)) {
        tracked.clearSince = matter.find(({ type }) => type === DELETED)?.kv?.mod_revision ?? 0;
      }
      this.#look(tracked);
    };
    const broken = (): void => {
      tracked.unwatchTarget = null;
      this.#wake(tracked);
    };
    const place = this.#watched(tracked, target);
    tracked.unwatchTarget = this.#watches.add({ ...place, start_revision: revision + 1, heard, broken });
  }

  /** Where nobody else stands in the way, the own key too: one watch tells in what order they left (`pitfalls.md` 1). */
  #watched({ name, key: own }: Tracked, target: Target): { readonly key: string; readonly range_end?: string } {
    if (target === "all") {
      const [key, range_end] = this.#keys.claims(name);
      return { key, range_end };
    }
    const { key, last } = target;
    if (!last) return { key };
    return key < own ? { key, range_end: `${own}\0` } : { key: own, range_end: `${key}\0` };
  }

  #wake({ name, id, over }: Tracked): void {
    if (!over) this.#tell({ kind: "wake", name, id });
  }

  #unwatchTarget(tracked: Tracked): void {
    tracked.unwatchTarget?.();
    tracked.unwatchTarget = null;
  }

  /** Whoever waits behind it in a semaphore is the first now, and watches its key (`pitfalls.md` 56). */
  passOn(tracked: Tracked, queue: Queue, { units }: Pick<Record, "units">): void {
    const capacity = queue.capacity ?? 1;
    if (units >= capacity || capacity >= READERS_MAX || queue.firstWaiter === undefined) return;
    const touch: RequestOp = { request_put: { key: tracked.key, ignore_value: true, ignore_lease: true } };
    const compare = [createdAt(tracked.key, tracked.token)];
    // If it fails, the one behind finds out by its own heartbeats.
    this.#store.txn({ compare, success: [touch] }).catch(() => {});
  }

  lost(tracked: Tracked): void {
    if (tracked.over) return;
    const { name, id } = tracked;
    this.forget(tracked, true);
    this.#tell({ kind: "lost", name, id });
  }

  /** Not ours to look after any more. `vacant`: the store said that it is not there. */
  forget(tracked: Tracked, vacant: boolean): void {
    const { name, place, loose } = tracked;
    if (this.get(tracked) !== tracked) return this.quiet(tracked);
    this.#drop(tracked);
    if (place.slot !== null) this.#slots.leave(name, place.slot, vacant && loose === 0);
  }

  #drop(tracked: Tracked): void {
    this.quiet(tracked);
    this.#endAlone(tracked.lease);
    const named = this.#names.get(tracked.name);
    named?.delete(tracked.id);
    if (named?.size === 0) this.#names.delete(tracked.name);
  }

  get #all(): Tracked[] {
    return [...this.#names.values()].flatMap((named) => [...named.values()]);
  }

  #endAlone({ alone, id }: Lease): void {
    if (alone) this.#leases.end(id);
  }

  /** It is over for whoever made it; until the store has confirmed that, it stays written down. */
  quiet(tracked: Tracked): void {
    tracked.over = true;
    if (tracked.watchLater !== null) this.#store.clock.cancel(tracked.watchLater);
    tracked.watchLater = null;
    tracked.unwatchOwn?.();
    tracked.unwatchOwn = null;
    this.#unwatchTarget(tracked);
  }

  allLost(): void {
    for (const tracked of this.#all) this.lost(tracked);
  }

  /** Ends everything here and says under which leases something may stand. */
  close(): ReadonlySet<Lease> {
    this.#closed = true;
    if (this.#timer !== null) this.#store.clock.cancel(this.#timer);
    const all = this.#all;
    for (const tracked of all) this.quiet(tracked);
    this.#names.clear();
    return new Set(all.map((tracked) => tracked.lease));
  }

  #wakeAt(at: number): void {
    if (this.#closed || at >= this.#timerAt) return;
    if (this.#timer !== null) this.#store.clock.cancel(this.#timer);
    this.#timerAt = at;
    this.#timer = this.#store.clock.after(Math.max(0, at - this.#store.clock.now()), () => void this.#expire());
  }

  /** Heartbeats move an end and leave the timer alone: it looks again when it fires. */
  async #expire(): Promise<void> {
    this.#timer = null;
    const now = this.#store.clock.now();
    const due = this.#all.filter((tracked) => tracked.endsAt <= now);
    for (const tracked of due) this.quiet(tracked);
    let again = false;
    for (const tracked of due) {
      again = !(await this.#end(tracked));
      // Nobody answers: the others are as due then as now.
      if (again) break;
    }
    this.#timerAt = Infinity;
    if (again) this.#wakeAt(this.#store.clock.now() + TRY_AGAIN_MS);
    for (const { endsAt } of this.#all) if (endsAt > now) this.#wakeAt(endsAt);
  }

  async #end(tracked: Tracked): Promise<boolean> {
    const { key, token, lease } = tracked;
    // Unless somebody took it over: then it stands under another lease.
    const compare = [underLease(key, lease.id), ...(token > 0 ? [createdAt(key, token)] : [])];
    if (token === 0) tracked.loose += 1;
    try {
      const removed = !lease.gone && (await this.#store.txn({ compare, success: [remove(key)] })).response.succeeded;
      this.forget(tracked, removed);
      return true;
    } catch {
      return false;
    }
  }
}
