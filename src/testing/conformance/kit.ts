import assert from "node:assert/strict";
import { type ConnectOptions, connect } from "../../connect.js";
import { type Chance, type Clock, SystemChance, SystemClock } from "../../core/clock.js";
import type {
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  Engine,
  EngineEvent,
  Granted,
  Queued,
  RenewAnswer,
  RenewRequest,
} from "../../core/engine.js";
import type { NameState } from "../../core/inspect.js";
import { READERS_MAX } from "../../core/limits.js";
import type { Locks } from "../../locks.js";
import { type Hooks, intercept } from "../intercept.js";

/** One thing an engine must do. */
export type Case = { readonly name: string; readonly run: (kit: Kit) => Promise<void> };

export type Setting = {
  /** Opens one more client of the same store. */
  readonly engine: () => Promise<Engine>;
  /** A lease that the store can tell from half of it: the unit of time of the whole suite. */
  readonly leaseStepMs: number;
  /** Claims belong to the session that made them: only their own client shrinks them. */
  readonly sessionBound?: boolean;
  /** The clock by which the engine's leases run, when it is not the system's. */
  readonly clock?: Clock & { advance(ms: number): Promise<void> };
};

type Ask = Partial<Omit<ClaimRequest, "name" | "id">>;

/** How much longer than asked for time may have passed, in steps, before leases end that a case still counts on. */
const STALLED_STEPS = 0.25;
const BEAT_STEPS = 0.05;

/** What a case works with: clients of one store, names of its own, time. Everything opened is closed at the end. */
export class Kit {
  readonly step: number;
  readonly clock: Clock;
  readonly #setting: Setting;
  readonly #chance: Chance = new SystemChance();
  readonly #cleanups: (() => Promise<void>)[] = [];
  #stalled = false;
  /** In real time: when this process last had a turn. */
  #beatAt = Infinity;

  constructor(setting: Setting) {
    this.#setting = setting;
    this.step = setting.leaseStepMs;
    this.clock = setting.clock ?? new SystemClock();
    if (setting.clock === undefined) this.#watchTheLoop();
  }

  /** In real time: this process, or the store, stood still for so long that what was seen says nothing about the engine. */
  get stalled(): boolean {
    this.#took(this.clock.now() - this.#beatAt);
    return this.#stalled;
  }

  async open(hooks?: Hooks): Promise<Engine> {
    const engine = await this.#setting.engine();
    this.#cleanups.push(async () => engine[Symbol.asyncDispose]());
    const timed = this.#setting.clock === undefined ? this.#timed(engine) : engine;
    return hooks === undefined ? timed : intercept(timed, hooks);
  }

  /** A whole client on an engine of its own. */
  async connect(options: ConnectOptions = {}, hooks?: Hooks): Promise<Locks> {
    const locks = await connect(await this.open(hooks), { clock: this.clock, ...options });
    this.#cleanups.push(() => locks.close());
    return locks;
  }

  /** A name that nobody else uses. */
  name(stem = "conformance"): string {
    return `${stem} ${this.#chance.id()}`;
  }

  claim(name: string, ask: Ask = {}): ClaimRequest {
    const owner = { client: "conformance", host: "localhost", pid: process.pid };
    return { name, id: this.#chance.id(), units: 1, capacity: 1, leaseMs: 20 * this.step, wait: true, owner, ...ask };
  }

  reader(name: string, ask: Ask = {}): ClaimRequest {
    return this.claim(name, { capacity: READERS_MAX, ...ask });
  }

  writer(name: string, ask: Ask = {}): ClaimRequest {
    return this.claim(name, { capacity: READERS_MAX, units: READERS_MAX, ...ask });
  }

  /** Time passes, by the engine's clock. */
  async pass(steps: number): Promise<void> {
    const ms = steps * this.step;
    if (this.#setting.clock) return this.#setting.clock.advance(ms);
    const startedAt = this.clock.now();
    await new Promise<void>((resolve) => this.clock.after(ms, resolve));
    this.#took(this.clock.now() - startedAt - ms);
  }

  /** Wait until something holds, for at most `steps`. */
  async until(steps: number, what: string, holds: () => boolean | Promise<boolean>): Promise<void> {
    for (let waited = 0; !(await holds()); waited += 0.05) {
      assert.ok(waited < steps, `within ${steps} steps: ${what}`);
      await this.pass(0.05);
    }
  }

  /** Wait for a promise while time passes. */
  async settled<T>(promise: Promise<T>, steps = 20): Promise<T> {
    let done = false;
    const finished = promise.finally(() => (done = true));
    // Returned below: until then its rejection must not count as unhandled.
    finished.catch(() => {});
    await this.until(steps, "the call is answered", () => done);
    return finished;
  }

  /** The end of every scenario: a new holder comes, whoever held before is refused, and only the new one can release. */
  async passesOn(engine: Engine, name: string, old: readonly ClaimRef[], capacity = 1): Promise<void> {
    const next = this.claim(name, { capacity, units: capacity, wait: false });
    granted(await engine.claim(next));
    for (const { id } of old)
      assert.notEqual(await engine.release({ name, id }), "released", "the old holder is refused");
    assert.equal((await engine.claim(this.claim(name, { capacity, wait: false }))).kind, "busy");
    assert.equal(await engine.release(next), "released", "the new holder releases");
  }

  listen(engine: Engine): EngineEvent[] {
    const events: EngineEvent[] = [];
    this.#cleanups.unshift(async () => unlisten());
    const unlisten = engine.listen((event) => events.push(event));
    return events;
  }

  async close(): Promise<void> {
    const outcomes: PromiseSettledResult<void>[] = [];
    for (const cleanup of this.#cleanups.toReversed()) {
      // However long a real server takes to end a connection, a virtual clock runs faster: the test's own time limit counts.
      outcomes.push(...(await Promise.allSettled([this.settled(cleanup(), Infinity)])));
    }
    // All of them were done before the first that failed is told.
    for (const outcome of outcomes) if (outcome.status === "rejected") throw outcome.reason;
  }

  #took(ms: number): void {
    if (ms > STALLED_STEPS * this.step) this.#stalled = true;
  }

  #watchTheLoop(): void {
    const everyMs = BEAT_STEPS * this.step;
    let timer = this.clock.after(everyMs, () => beat());
    const beat = (): void => {
      this.#took(this.clock.now() - this.#beatAt);
      this.#beatAt = this.clock.now();
      timer = this.clock.after(everyMs, beat);
    };
    this.#beatAt = this.clock.now();
    this.#cleanups.push(async () => this.clock.cancel(timer));
  }

  /** The engine, with an eye on how long the store takes. */
  #timed(engine: Engine): Engine {
    const timed = async <T>(call: () => Promise<T>): Promise<T> => {
      const startedAt = this.clock.now();
      try {
        return await call();
      } finally {
        this.#took(this.clock.now() - startedAt);
      }
    };
    return intercept(engine, { claim: timed, release: timed, renew: timed, resize: timed });
  }
}

export function granted(answer: ClaimAnswer | RenewAnswer | undefined): Granted {
  assert.equal(answer?.kind, "granted");
  return answer;
}

export function queued(answer: ClaimAnswer | RenewAnswer | undefined): Queued {
  assert.equal(answer?.kind, "queued");
  return answer;
}

export async function renewOne(engine: Engine, request: RenewRequest): Promise<RenewAnswer> {
  const [renewal] = await engine.renew([request]);
  assert.ok(renewal, "renew answers every request");
  return renewal;
}

export async function stateOf(engine: Engine, name: string): Promise<NameState | undefined> {
  const states: NameState[] = [];
  for await (const state of engine.inspect({ name })) states.push(state);
  assert.ok(states.length <= 1, "inspect by name shows one name");
  return states[0];
}

/** `actual` lies between the two, give or take what a store may round. */
export function between(actual: number, least: number, most: number, what: string): void {
  assert.ok(actual >= least && actual <= most + 2, `${what}: ${actual} should be from ${least} to ${most}`);
}
