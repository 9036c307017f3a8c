import { adopt } from "./core/adopt.js";
import { checkCount, checkFunction, checkKnown, checkLease, checkNumber, ID_ALLOWED, shown } from "./core/checks.js";
import type { Client } from "./core/client.js";
import { InvalidOptionError } from "./core/errors.js";
import { EVENT_TYPES, type LockEvents, type LockEventType } from "./core/events.js";
import type { Guarantees } from "./core/guarantees.js";
import type { HandOver } from "./core/hand-over.js";
import type { Health } from "./core/health.js";
import { Hold, WriteHold } from "./core/hold.js";
import type { InspectFilter, NameState, Owner } from "./core/inspect.js";
import { GRACE_DEFAULT_MS, READERS_MAX, TIMER_MAX_MS } from "./core/limits.js";
import { checkName } from "./core/name.js";
import { type Subscription, subscription } from "./core/unlisten.js";
import { Barrier } from "./recipes/barrier.js";
import { type MutexOptions, mutexOf } from "./recipes/burst.js";
import { Counter } from "./recipes/counter.js";
import { DoubleBarrier } from "./recipes/double-barrier.js";
import { Election } from "./recipes/election.js";
import { Job, type JobOptions } from "./recipes/job.js";
import { Latch } from "./recipes/latch.js";
import type { Lock } from "./recipes/lock.js";
import { MultiLock } from "./recipes/multi.js";
import type { Mutex } from "./recipes/mutex.js";
import { ReadWrite } from "./recipes/read-write.js";
import { Schedule, type ScheduleOptions } from "./recipes/schedule.js";
import { Semaphore } from "./recipes/semaphore.js";
import { Striped } from "./recipes/striped.js";
import { type Tick, Ticks, type TicksOptions } from "./recipes/ticks.js";

export interface InspectOptions extends InspectFilter {
  /** List so many names at most. */
  readonly limit?: number;
}

export interface DrainOptions {
  /** How long holders may take to finish; 10 s unless said otherwise. */
  readonly graceMs?: number;
}

/** All recipes on one store. Made by `connect`. */
export class Locks implements AsyncDisposable {
  readonly #client: Client;
  readonly #dispose: () => Promise<void>;
  #closed: Promise<void> | null = null;
  #drained: Promise<void> | null = null;
  #health: Promise<Health> | null = null;

  /** @internal */
  constructor(client: Client, dispose: () => Promise<void>) {
    this.#client = client;
    this.#dispose = dispose;
  }

  /** What `holdfast/live` reads and releases with. @internal */
  get client(): Client {
    return this.#client;
  }

  /** What the store guarantees, and what it does not. */
  get guarantees(): Guarantees {
    return this.#client.engine.guarantees;
  }

  /** Who the others see: this client's id, host, process and label. */
  get owner(): Owner {
    return this.#client.owner;
  }

  mutex(name: string, options: MutexOptions = {}): Mutex {
    return mutexOf(this.#client, checkName(name), options);
  }

  readWrite(name: string): ReadWrite {
    return new ReadWrite(this.#client, checkName(name));
  }

  semaphore(name: string, capacity: number): Semaphore {
    return new Semaphore(this.#client, checkName(name), capacity);
  }

  /** Several locks as one, all or none; they may be of other locks objects, on other stores. */
  all(locks: readonly Lock<Hold>[]): MultiLock {
    return new MultiLock(locks);
  }

  striped(name: string, stripes: number): Striped {
    return new Striped(this.#client, checkName(name), stripes);
  }

  latch(name: string, count: number): Latch {
    return new Latch(this.#client, checkName(name), count);
  }

  barrier(name: string, parties: number): Barrier {
    return new Barrier(this.#client, checkName(name), parties);
  }

  doubleBarrier(name: string, parties: number): DoubleBarrier {
    return new DoubleBarrier(this.#client, checkName(name), parties);
  }

  election(name: string): Election {
    return new Election(this.#client, checkName(name));
  }

  job(name: string, options: JobOptions = {}): Job {
    return new Job(this.#client, checkName(name), options);
  }

  /** The ticks of another scheduler, such as node-cron, each once in the whole fleet. */
  ticks(name: string, options: TicksOptions = {}): Ticks {
    return new Ticks(this.#client, checkName(name), options);
  }

  /** Run each tick once in the whole fleet: all programs call this with the same name and the same times. */
  async schedule(name: string, options: ScheduleOptions, run: (tick: Tick) => unknown): Promise<Schedule> {
    return Schedule.start(this.#client, checkName(name), options, run);
  }

  counter(name: string): Counter {
    return new Counter(this.#client, checkName(name));
  }

  /**
   * Go on with a hold that another process gave away with `hold.handOver()`. A forced release is told to whoever took it;
   * here it is learned at the next renewal.
   */
  async adopt(data: HandOver): Promise<Hold | WriteHold> {
    const grant = await adopt(this.#client, checkHandOver(data));
    return grant.units === READERS_MAX ? new WriteHold(grant) : new Hold(grant);
  }

  /** What the store knows about the names in use: all, or as many as `limit` says. */
  inspect(options: InspectOptions = {}): AsyncIterable<NameState> {
    checkKnown(options, ["name", "prefix", "limit"]);
    const { limit, ...filter } = options;
    if (limit !== undefined) checkCount("limit", limit, 1, Number.MAX_SAFE_INTEGER);
    this.#client.assertOpen("inspecting");
    return this.#client.inspect(filter, limit);
  }

  /**
   * Whether locks can be used now, for health checks and probes: a lock of its own is taken, shown, renewed and given back, within
   * `callTimeoutMs`. Never rejects. Whoever asks meanwhile gets the same answer.
   */
  health(): Promise<Health> {
    return (this.#health ??= this.#checkHealth().finally(() => (this.#health = null)));
  }

  /** Listen to what happens to this client's claims, until the result is called or disposed of. */
  on<Type extends LockEventType>(type: Type, listener: (event: LockEvents[Type]) => void): Subscription {
    checkFunction("listener", listener);
    if (!EVENT_TYPES.includes(type)) throw new InvalidOptionError("type", shown(type), EVENT_TYPES.join(", "));
    return subscription(this.#client.events.on(type, listener));
  }

  /**
   * Stop in peace: from now on nothing new is taken (`DrainingError`), who waits leaves with that error, and holders are asked to
   * finish by their signal `draining`. Closes when the last hold was given back, or after `graceMs`: holds that are left then are
   * lost. Calling it again changes nothing; `close()` ends it at once.
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    checkKnown(options, ["graceMs"]);
    const { graceMs = GRACE_DEFAULT_MS } = options;
    checkNumber("graceMs", graceMs, 0, TIMER_MAX_MS, "milliseconds");
    return (this.#drained ??= this.#client.drain(graceMs).then(() => this.close()));
  }

  /** Aborted with a `DrainingError` when `drain()` is called, with a `ClosedError` by `close()`: start no new work. */
  get draining(): AbortSignal {
    return this.#client.draining;
  }

  /** Release all holds, withdraw all waiting claims, leave no timer and no connection of its own behind. */
  close(): Promise<void> {
    return (this.#closed ??= this.#client.close().then(this.#dispose));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #checkHealth(): Promise<Health> {
    // Loaded by those who ask.
    const { checkHealth } = await import("./core/health.js");
    return checkHealth(this.#client);
  }
}

const HAND_OVER = ["name", "id", "units", "capacity", "leaseMs", "renew", "maxHoldMs"] satisfies (keyof HandOver)[];

function checkHandOver(data: HandOver): HandOver {
  checkKnown(data, HAND_OVER);
  checkName(data.name);
  if (typeof data.id !== "string" || !ID_ALLOWED.test(data.id)) {
    throw new InvalidOptionError("id", shown(data.id), "the id of a hold, as handOver() gives it");
  }
  checkCount("capacity", data.capacity, 1, READERS_MAX);
  checkCount("units", data.units, 1, data.capacity);
  if (typeof data.renew !== "boolean") throw new InvalidOptionError("renew", shown(data.renew), "true or false");
  if (data.maxHoldMs !== undefined) checkNumber("maxHoldMs", data.maxHoldMs, 1, TIMER_MAX_MS, "milliseconds");
  // As everywhere: stores count whole milliseconds.
  return { ...data, leaseMs: checkLease(data.leaseMs) };
}
