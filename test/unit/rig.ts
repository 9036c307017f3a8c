import { onTestFinished } from "vitest";
import { type ConnectOptions, connect } from "../../src/connect.js";
import type { ClaimRequest, Engine, EngineEvent } from "../../src/core/engine.js";
import { EVENT_TYPES, type LockEvents, type LockEventType } from "../../src/core/events.js";
import { memoryEngine, memoryStore } from "../../src/engines/memory/index.js";
import type { Locks } from "../../src/locks.js";
import { FakeClock } from "../../src/testing/fake-clock.js";
import { type Hooks, intercept } from "../../src/testing/intercept.js";
import { SeededChance } from "../../src/testing/seeded-chance.js";

export type Told = { [Type in LockEventType]: { type: Type } & LockEvents[Type] }[LockEventType];

export type Rigged = {
  locks: Locks;
  /** Change these while the test runs. */
  hooks: Hooks;
  /** Calls that reached the engine, counted by verb. */
  calls: Record<"claim" | "release" | "renew" | "resize", number>;
  told: Told[];
};

/** One memory store, any number of clients, one clock that moves only when told. */
export function rig() {
  const clock = new FakeClock();
  const store = memoryStore(clock);
  let seed = 1;

  async function open(options: ConnectOptions = {}, hooks: Hooks = {}): Promise<Rigged> {
    const calls = { claim: 0, release: 0, renew: 0, resize: 0 };
    const engine = counting(intercept(memoryEngine(store), hooks), calls);
    const locks = await connect(engine, { clock, chance: new SeededChance(seed++), ...options });
    const told: Told[] = [];
    for (const type of EVENT_TYPES) locks.on(type, (event) => told.push({ type, ...event } as Told));
    onTestFinished(async () => {
      for (const verb of Object.keys(hooks) as (keyof Hooks)[]) delete hooks[verb];
      const closing = locks.close();
      await clock.advance(60_000);
      await closing;
    });
    return { locks, hooks, calls, told };
  }

  return { clock, store: store.claims, engine: () => memoryEngine(store), open };
}

function counting(engine: Engine, calls: Rigged["calls"]): Engine {
  return {
    ...engine,
    claim: (claim) => ((calls.claim += 1), engine.claim(claim)),
    release: (leave) => ((calls.release += 1), engine.release(leave)),
    renew: (requests) => ((calls.renew += 1), engine.renew(requests)),
    resize: (ref, units) => ((calls.resize += 1), engine.resize(ref, units)),
  };
}

export function types(told: readonly Told[]): string[] {
  return told.map((event) => event.type);
}

/** A promise that never settles: an answer that never comes. */
export function never<T>(): Promise<T> {
  return new Promise(() => {});
}

/** How a promise stands right now, without waiting for it. */
export function watch<T>(promise: Promise<T>): { state: "pending" | "done" | "failed"; value?: T; error?: unknown } {
  const seen: ReturnType<typeof watch<T>> = { state: "pending" };
  promise.then(
    (value) => Object.assign(seen, { state: "done", value }),
    (error: unknown) => Object.assign(seen, { state: "failed", error }),
  );
  return seen;
}

/** A client whose pushes come from the test (and, unless deaf, from the store too). */
export async function wired(base: ReturnType<typeof rig>, options: ConnectOptions = {}, deaf = false) {
  let listener: (event: EngineEvent) => void = () => {};
  const real = intercept(base.engine(), {});
  const engine: Engine = {
    ...real,
    listen: (one) => {
      listener = one;
      return deaf ? () => {} : real.listen(one);
    },
  };
  const locks = await connect(engine, { clock: base.clock, chance: new SeededChance(77), ...options });
  return { locks, push: (event: EngineEvent) => listener(event), engine };
}

const owner = { client: "c", host: "h", pid: 1 };
export const claimOf = (id: string, over: Partial<ClaimRequest> = {}): ClaimRequest => ({
  name: "m",
  id: id.padEnd(22, "."),
  units: 1,
  capacity: 1,
  leaseMs: 10_000,
  wait: false,
  owner,
  ...over,
});

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
