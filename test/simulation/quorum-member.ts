import type { Clock, Timer } from "../../src/core/clock.js";
import type { Engine } from "../../src/core/engine.js";
import type { InspectFilter, NameState } from "../../src/core/inspect.js";
import type { ServerInfo } from "../../src/core/server-info.js";
import { Listeners } from "../../src/engine-kit/listeners.js";
import { memoryEngine, memoryStore, type SharedMemory } from "../../src/engines/memory/index.js";
import type { FakeClock } from "../../src/testing/fake-clock.js";

/** A server's clock: a speed of its own, a calendar of its own, and somebody who sets it. */
export class MemberClock implements Clock {
  readonly #base: FakeClock;
  readonly #rate: number;
  readonly #skewMs: number;
  #jumpedMs = 0;

  constructor(base: FakeClock, rate: number, skewMs: number) {
    this.#base = base;
    this.#rate = rate;
    this.#skewMs = skewMs;
  }

  now(): number {
    return this.#base.now() * this.#rate + this.#jumpedMs;
  }

  wallMs(): number {
    return this.#base.wallMs() + this.#skewMs + this.#jumpedMs;
  }

  /** Leases and tokens go by the same clock, as on Redis. */
  jump(ms: number): void {
    this.#jumpedMs += ms;
  }

  after(ms: number, run: () => void): Timer {
    return this.#base.after(ms / this.#rate, run);
  }

  cancel(timer: Timer): void {
    this.#base.cancel(timer);
  }
}

/** A simulated server: the memory engine, which may go away, and come back with or without what it knew. */
export class SimulatedMember {
  readonly clock: MemberClock;
  /** Ids that it granted, and ids whose release it has heard. */
  readonly granted = new Set<string>();
  readonly released = new Set<string>();
  /** Places in its queues, each with its name: that were taken, and that were given back. */
  readonly stood = new Set<string>();
  readonly left = new Set<string>();
  readonly #name: string;
  #store: SharedMemory;
  #away: "refusing" | "hung" | null = null;
  /** By its own clock; at first it has been running for ever. */
  #startedAt = -Infinity;

  constructor(name: string, clock: MemberClock) {
    this.#name = name;
    this.clock = clock;
    this.#store = memoryStore(clock);
  }

  /** Whoever wants to connect is told so at once, and nothing is sent. */
  get refuses(): boolean {
    return this.#away === "refusing";
  }

  goAway(how: "refusing" | "hung"): void {
    this.#away = how;
  }

  comeBack(forgetting: boolean): void {
    this.#away = null;
    this.#startedAt = this.clock.now();
    if (forgetting) this.#store = memoryStore(this.clock);
  }

  /**
   * Whether a claim stands here, as nobody but the judge can know, and counts. Beside others one with a higher token does not:
   * they would be told a floor above it. Where it still takes everything, nobody comes in and is told.
   */
  counts(name: string, id: string, token: number): boolean {
    for (const { holders, capacity } of this.#store.claims.inspect((one) => one === name)) {
      if (holders.some((one) => one.id === id && (one.token <= token || one.units === capacity))) return true;
    }
    return false;
  }

  /** What stands here, as nobody but the judge can see while it is away. */
  async *look(filter?: InspectFilter): AsyncGenerator<NameState> {
    yield* this.#store.claims.inspect((name) => filter?.name === undefined || filter.name === name);
  }

  get isEmpty(): boolean {
    return this.#store.claims.inspect(() => true).next().done === true;
  }

  async serverInfo(): Promise<ServerInfo> {
    return { server: this.#name, upMs: this.clock.now() - this.#startedAt };
  }

  async *#inspect(
    reach: <T>(call: (engine: Engine) => Promise<T>) => Promise<T>,
    filter: InspectFilter | undefined,
  ): AsyncGenerator<NameState> {
    yield* await reach(async (engine) => engine.inspect(filter));
  }

  /** One client's way in. */
  open(): Engine {
    const engines = new Map<SharedMemory, Engine>();
    const listeners = new Listeners();
    const current = (): Engine => {
      const known = engines.get(this.#store);
      if (known !== undefined) return known;
      const engine = memoryEngine(this.#store);
      engines.set(this.#store, engine);
      // Who is away pushes to nobody, and what it forgot it pushes no more.
      const store = this.#store;
      engine.listen((event) => this.#away === null && this.#store === store && listeners.tell(event));
      return engine;
    };
    const reach = async <T>(call: (engine: Engine) => Promise<T>): Promise<T> => {
      // What was on its way when it went away, or comes a second time.
      if (this.#away === "refusing") throw new Error("connection refused");
      if (this.#away === "hung") return new Promise<T>(() => {});
      return call(current());
    };
    return {
      kind: "simulated",
      guarantees: { ...current().guarantees, crashRelease: "lease", survivesRestart: false },
      leaseMinMs: 1,
      cells: null,
      claim: (claim) =>
        reach(async (engine) => {
          const answer = await engine.claim(claim);
          if (answer.kind === "granted") this.granted.add(claim.id);
          if (answer.kind === "granted" || answer.kind === "queued") this.stood.add(`${claim.name} ${claim.id}`);
          return answer;
        }),
      release: (leave) =>
        reach((engine) => {
          this.released.add(leave.id);
          this.left.add(`${leave.name} ${leave.id}`);
          return engine.release(leave);
        }),
      renew: (requests) => reach((engine) => engine.renew(requests)),
      resize: (ref, units) => reach((engine) => engine.resize(ref, units)),
      setCapacity: (name, from, to) => reach((engine) => engine.setCapacity(name, from, to)),
      listen: (listener) => listeners.add(listener),
      inspect: (filter) => this.#inspect(reach, filter),
      serverInfo: () => reach(() => this.serverInfo()),
      [Symbol.asyncDispose]: async () => {},
    };
  }
}
