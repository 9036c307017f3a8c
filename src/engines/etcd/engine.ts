import type { Cells } from "../../core/cells.js";
import type {
  Answer,
  CapacityAnswer,
  Claim,
  ClaimRef,
  Engine,
  EngineEvent,
  Leave,
  Renewal,
  Sign,
  Unlisten,
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { Promises } from "../../core/promises.js";
import { Book } from "./book.js";
import { forgetCapacity, setCapacity } from "./capacity.js";
import { EtcdCells } from "./cells.js";
import { Claiming } from "./claiming.js";
import { type EtcdLike, isLeaseGone, isOutOfSpace } from "./client.js";
import { inspect } from "./inspect.js";
import { Keys } from "./keys.js";
import { Leases } from "./leases.js";
import { Looking } from "./looking.js";
import type { Settings } from "./options.js";
import type { Parts } from "./parts.js";
import { translated } from "./refusals.js";
import { Renewing } from "./renewing.js";
import { absent, changedAt, count, put, remove } from "./requests.js";
import { Store } from "./store.js";
import { Views } from "./view.js";
import { Watches } from "./watches.js";

const TRIES_MAX = 50;

/** The queue is the keys of a name in order of their creation; whoever fits beside all that came before it holds. */
export class EtcdEngine implements Engine {
  readonly kind = "etcd";
  readonly promises: Promises;
  readonly leaseMinMs: number;
  readonly cells: Cells;
  readonly #client: EtcdLike;
  readonly #own: boolean;
  readonly #parts: Parts;
  readonly #watches: Watches;
  readonly #claiming: Claiming;
  readonly #renewing: Renewing;
  readonly #looking: Looking;
  readonly #listeners = new Set<(event: EngineEvent) => void>();
  #closed: Promise<void> | null = null;

  /** `own`: the client was made for this engine and ends with it. */
  constructor(client: EtcdLike, settings: Settings, promises: Promises, leaseMinMs: number, own: boolean) {
    const { clock, chance, prefix } = settings;
    this.promises = promises;
    this.leaseMinMs = leaseMinMs;
    this.#client = client;
    this.#own = own;
    const keys = new Keys(prefix);
    const tell = (event: EngineEvent): void => this.#tell(event);
    const store = new Store(client, clock, () => this.#wentBack());
    const leases = new Leases(client, clock);
    this.#watches = new Watches(client, clock, chance);
    const book = new Book(store, keys, leases, this.#watches, tell, (tracked) => void this.#looking.look(tracked));
    this.#parts = { store, keys, leases, book, views: new Views(store, keys), tell };
    this.#renewing = new Renewing(this.#parts);
    this.#looking = new Looking(this.#parts);
    this.#claiming = new Claiming(this.#parts, this.#renewing);
    this.cells = new EtcdCells(store, keys, leases, this.#watches);
  }

  async claim(claim: Claim): Promise<Answer> {
    return this.#do(() => this.#claiming.claim(claim));
  }

  async renew(signs: readonly Sign[]): Promise<readonly Renewal[]> {
    return this.#do(async () => (signs.length === 0 ? [] : this.#renewing.renew(signs)));
  }

  async release(leave: Leave): Promise<"released" | "gone"> {
    return this.#do(() => this.#release(leave));
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

  listen(listener: (event: EngineEvent) => void): Unlisten {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
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

  async #release({ name, id, settled = false }: Leave): Promise<"released" | "gone"> {
    const { keys, store, book, leases } = this.#parts;
    const key = keys.claim(name, id);
    const tracked = book.get(key);
    if (tracked !== undefined) book.quiet(tracked);
    const compare = [absent(keys.capacity(name))];
    const leave = async (marked: boolean): Promise<"released" | "gone"> => {
      const operations = [remove(key)];
      if (marked) operations.push(put(keys.mark(name, id), "", (await leases.marks()).id));
      const { response } = await store.txn({
        compare,
        success: operations,
        failure: [...operations, count(...keys.claims(name))],
      });
      if (tracked !== undefined) book.forget(tracked);
      const left = response.responses.at(-1)?.response_range?.count ?? 1;
      if (!response.succeeded && left === 0) await forgetCapacity(this.#parts, name);
      return response.responses[0]?.response_delete_range?.deleted === 1 ? "released" : "gone";
    };
    try {
      return await leave(!settled);
    } catch (cause) {
      // With no space left nothing may be written, no late copy of the claim either: then it needs no mark.
      if (isOutOfSpace(cause)) return leave(false);
      if (!isLeaseGone(cause)) throw cause;
      leases.marksLost();
      return leave(!settled);
    }
  }

  async #resize(ref: ClaimRef, units: number): Promise<"resized" | "refused" | "gone"> {
    const { keys, store, views } = this.#parts;
    const key = keys.claim(ref.name, ref.id);
    for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
      const { own, queue } = (await views.one({ ref, limit: Infinity })).view;
      if (own === undefined || own.record === null) return "gone";
      const { record } = own;
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
    for (const listener of this.#listeners) listener(event);
  }

  /** What was held in the store that answered before is not held in this one. */
  #wentBack(): void {
    this.#tell({ kind: "warning", message: "etcd's revision went back: it was probably restored from a backup" });
    this.#parts.book.allLost();
  }
}
