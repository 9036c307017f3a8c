import type { Cells } from "../../core/cells.js";
import { type Clock, MonotonicClock, SystemChance } from "../../core/clock.js";
import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  RenewRequest,
} from "../../core/engine.js";
import { ClosedError } from "../../core/errors.js";
import type { InspectFilter, NameState } from "../../core/inspect.js";
import type { ServerInfo } from "../../core/server-info.js";
import type { Unlisten } from "../../core/unlisten.js";
import { Listeners } from "../../engine-kit/listeners.js";
import { MemoryCells } from "./cells.js";
import { GUARANTEES } from "./guarantees.js";
import { MemoryStore, type Push } from "./store.js";

/** What the engines of one store share. Opaque: made by `memoryStore`. */
export type SharedMemory = {
  readonly claims: MemoryStore;
  readonly cells: Cells;
  readonly serverInfo: () => ServerInfo;
};

/**
 * Leases run by the monotonic clock alone: were the store to see a jump of the wall clock that a holder has not seen yet,
 * it would free what is still held.
 */
export function memoryStore(clock: Clock = new MonotonicClock()): SharedMemory {
  const server = `memory ${new SystemChance().id()}`;
  const startedAt = clock.now();
  const serverInfo = (): ServerInfo => ({ server, upMs: clock.now() - startedAt });
  return { claims: new MemoryStore(clock), cells: new MemoryCells(clock), serverInfo };
}

/** An engine in the memory of this process. Engines made on the same store exclude each other; each is one client of it. */
export function memoryEngine(store: SharedMemory = memoryStore()): Engine {
  return new MemoryEngine(store);
}

class MemoryEngine implements Engine {
  readonly kind = "memory";
  readonly guarantees = GUARANTEES;
  readonly leaseMinMs = 1;
  readonly reserves = true;
  readonly cells: Cells;
  readonly #store: MemoryStore;
  readonly #serverInfo: () => ServerInfo;
  readonly #listeners = new Listeners();
  #closed = false;

  constructor(store: SharedMemory) {
    this.#store = store.claims;
    this.cells = store.cells;
    this.#serverInfo = store.serverInfo;
  }

  // Later, as from any other store: who is pushed to must not run inside the step that pushes.
  readonly #push: Push = (event) =>
    queueMicrotask(() => {
      if (!this.#closed) this.#listeners.tell(event);
    });

  // Not async: there is nothing to await, and every pair would pay for it.
  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    if (this.#closed) return Promise.reject(closed());
    return Promise.resolve(this.#store.claim(request, this.#push));
  }

  release(request: ReleaseRequest): Promise<ReleaseAnswer> {
    if (this.#closed) return Promise.reject(closed());
    return Promise.resolve(this.#store.release(request, this.#push));
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
    return this.#serverInfo();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    this.#listeners.clear();
  }

  #open(): MemoryStore {
    if (this.#closed) throw closed();
    return this.#store;
  }
}

function closed(): ClosedError {
  return new ClosedError("using the memory engine");
}
