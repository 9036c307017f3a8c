import type { Cells } from "../../core/cells.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
  Unlisten,
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { setCapacity } from "./capacity.js";
import { EtcdCells } from "./cells.js";
import { Claiming } from "./claim.js";
import { Book, type Tracked } from "./claims.js";
import type { EtcdDriver } from "./driver.js";
import { translated } from "./errors.js";
import { Watches } from "./events.js";
import { inspect } from "./inspect.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import { Looking } from "./looking.js";
import type { Compare } from "./messages.js";
import type { Settings } from "./options.js";
import type { Parts } from "./parts.js";
import { release } from "./release.js";
import { Renewing } from "./renew.js";
import { changedAt, createdAt } from "./requests.js";
import { Slots } from "./slots.js";
import { Views } from "./snapshots.js";
import { Store } from "./transactions.js";

const TRIES_MAX = 50;

/** The queue is the keys of a name in order of their creation; whoever fits beside all that came before it holds. */
export class EtcdEngine implements Engine {
  readonly kind = "etcd";
  readonly guarantees: Guarantees;
  readonly leaseMinMs: number;
  readonly cells: Cells;
  readonly #client: EtcdDriver;
  readonly #own: boolean;
  readonly #parts: Parts;
  readonly #watches: Watches;
  readonly #claiming: Claiming;
  readonly #renewing: Renewing;
  readonly #looking: Looking;
  readonly #listeners = new Listeners();
  #closed: Promise<void> | null = null;

  /** `own`: the client was made for this engine and ends with it. */
  constructor(client: EtcdDriver, settings: Settings, guarantees: Guarantees, leaseMinMs: number, own: boolean) {
    const { clock, chance, prefix } = settings;
    this.guarantees = guarantees;
    this.leaseMinMs = leaseMinMs;
    this.#client = client;
    this.#own = own;
    const keys = new Keys(prefix);
    const tell = (event: EngineEvent): void => this.#tell(event);
    const store = new Store(client, clock, () => this.#wentBack());
    const leases = new Leases(client, clock);
    this.#watches = new Watches(client, clock, chance, tell);
    const slots = new Slots(chance.id());
    const look = (tracked: Tracked): void => void this.#looking.look(tracked);
    const book = new Book(store, keys, slots, leases, this.#watches, tell, look);
    this.#parts = { store, keys, leases, book, views: new Views(store, keys), tell };
    this.#renewing = new Renewing(this.#parts);
    this.#looking = new Looking(this.#parts);
    this.#claiming = new Claiming(this.#parts, this.#renewing);
    this.cells = new EtcdCells(store, keys, leases, this.#watches);
  }

  async claim(claim: ClaimRequest): Promise<ClaimAnswer> {
    return this.#do(() => this.#claiming.claim(claim));
  }

  async renew(signs: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    return this.#do(async () => (signs.length === 0 ? [] : this.#renewing.renew(signs)));
  }

  async release(leave: ReleaseRequest): Promise<ReleaseAnswer> {
    return this.#do(() => release(this.#parts, leave));
  }

  async resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    return this.#do(() => this.#resize(ref, units));
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#do(() => setCapacity(this.#parts, name, from, to));
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    this.#assertOpen();
    try {
      yield* inspect(this.#parts, filter);
    } catch (cause) {
      throw translated(cause);
    }
  }

  /** The compare of a transaction that is true while the claim is there and ours. */
  heldCompare(ref: ClaimRef): Compare {
    const { book, keys } = this.#parts;
    const tracked = book.get(ref);
    return tracked?.granted && !tracked.over ? createdAt(tracked.key, tracked.token) : createdAt(keys.probe, 1);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#listeners.clear();
    const inUse = this.#parts.book.close();
    this.#watches.close();
    await this.#parts.leases.close(inUse);
    if (this.#own) this.#client.close();
  }

  async #resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    const { store, views } = this.#parts;
    for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
      const { own, queue } = (await views.one({ ref, limit: Infinity })).view;
      if (own === undefined || own.record === null) return "gone";
      const { key, record } = own;
      if (!queue.holds(key) || units > record.units) return "refused";
      if (units === record.units) return "resized";
      const value = Buffer.from(JSON.stringify({ ...record, units }));
      const { response } = await store.txn({
        compare: [changedAt(key, own.changed)],
        success: [{ request_put: { key, value, ignore_lease: true } }],
      });
      if (response.succeeded) return "resized";
    }
    throw new Error("the claim changed, again and again");
  }

  async #do<T>(call: () => Promise<T>): Promise<T> {
    this.#assertOpen();
    try {
      return await call();
    } catch (cause) {
      throw translated(cause);
    }
  }

  #assertOpen(): void {
    if (this.#closed !== null) throw new ClosedError("using the etcd engine");
  }

  #tell(event: EngineEvent): void {
    this.#listeners.tell(event);
  }

  /** What was held in the store that answered before is not held in this one. */
  #wentBack(): void {
    this.#tell({ kind: "warning", message: "etcd's revision went back: it was probably restored from a backup" });
    this.#parts.book.allLost();
  }
}
