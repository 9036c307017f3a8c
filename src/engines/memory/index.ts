import type { Cells } from "../../core/cells.js";
import { type Clock, MonotonicClock, SystemChance } from "../../core/clock.js";
import type { ClaimRef, ClaimRequest, Engine, EngineEvent, ReleaseRequest, RenewRequest } from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { Guarantees } from "../../core/guarantees.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { MemoryCells } from "./cells.js";
import { MemoryStore, type Push } from "./store.js";

/** What the engines of one store share. Opaque: made by `memoryStore`. */
export type SharedMemory = { readonly claims: MemoryStore; readonly cells: Cells; readonly about: () => ServerInfo };

/**
 * Leases run by the monotonic clock alone: were the store to see a jump of the wall clock that a holder has not looked at
 * yet, it would free what is still held.
 */
export function memoryStore(clock: Clock = new MonotonicClock()): SharedMemory {
  const server = `memory ${new SystemChance().id()}`;
  const startedAt = clock.now();
  const about = (): ServerInfo => ({ server, upMs: clock.now() - startedAt });
  return { claims: new MemoryStore(clock), cells: new MemoryCells(clock), about };
}

const GUARANTEES: Guarantees = {
  exclusion: "one-process",
  token: "monotonic",
  order: "fifo",
  wake: "push",
  crashRelease: "at-once",
  survivesRestart: false,
};

/** An engine in the memory of this process. Engines made on the same store exclude each other; each is one client of it. */
export function memoryEngine(store: SharedMemory = memoryStore()): Engine {
  return new MemoryEngine(store);
}

/** For all copies of this package in the process: two stores of one name would let two programs in. */
const STORES = Symbol.for("holdfast.memory.stores");

/** `memory:` and `memory:name`: one store for each name in this process, whoever opens it. */
export function openMemory(url: string): Engine {
  const name = url.replace(/^memory:(\/\/)?/i, "");
  const global = globalThis as { [STORES]?: Map<string, SharedMemory> };
  const stores = (global[STORES] ??= new Map());
  let store = stores.get(name);
  if (store === undefined) stores.set(name, (store = memoryStore()));
  return memoryEngine(store);
}

class MemoryEngine implements Engine {
  readonly kind = "memory";
  readonly guarantees = GUARANTEES;
  readonly leaseMinMs = 1;
  readonly cells: Cells;
  readonly #store: MemoryStore;
  readonly #about: () => ServerInfo;
  readonly #listeners = new Listeners();
  #closed = false;

  constructor(store: SharedMemory) {
    this.#store = store.claims;
    this.cells = store.cells;
    this.#about = store.about;
  }

  // Later, as from any other store: who is pushed to must not run inside the step that pushes.
  readonly #push: Push = (event) =>
    queueMicrotask(() => {
      if (!this.#closed) this.#listeners.tell(event);
    });

  async claim(claim: ClaimRequest) {
    return this.#open().claim(claim, this.#push);
  }

  async release(leave: ReleaseRequest) {
    return this.#open().release(leave, this.#push);
  }

  async renew(requests: readonly RenewRequest[]) {
    const store = this.#open();
    return requests.map((request) => store.renew(request));
  }

  async resize(ref: ClaimRef, units: number) {
    return this.#open().resize(ref, units);
  }

  async setCapacity(name: string, from: number, to: number) {
    return this.#open().setCapacity(name, from, to);
  }

  listen(listener: (event: EngineEvent) => void): Unlisten {
    return this.#listeners.add(listener);
  }

  async *inspect(filter: InspectFilter = {}): AsyncGenerator<NameState> {
    const { name, prefix = "" } = filter;
    const matches = (text: string): boolean => (name === undefined || text === name) && text.startsWith(prefix);
    yield* this.#open().inspect(matches);
  }

  async serverInfo(): Promise<ServerInfo> {
    return this.#about();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    this.#listeners.clear();
  }

  #open(): MemoryStore {
    if (this.#closed) throw new ClosedError("using the memory engine");
    return this.#store;
  }
}
