import type { Clock } from "../core/clock.js";
import { EngineUnavailableError, LockLostError } from "../core/errors.js";
import { type Hold, WriteHold } from "../core/hold.js";
import { READERS_MAX } from "../core/limits.js";
import type { AcquireOptions } from "../core/options.js";
import type { Locks } from "../locks.js";
import { emptyHistory, type Held, type History } from "./history.js";
import type { SeededChance } from "./seeded-chance.js";

/** One client; `rate` is the speed of its clock, where that differs from the observer's. */
export type Contender = { readonly locks: Locks; readonly clock: Clock; readonly rate?: number };

export type ContendOptions = {
  readonly contenders: readonly Contender[];
  /** The clock by which history is written. */
  readonly observer: Clock;
  readonly chance: SeededChance;
  /** How many locks each contender takes, one after the other in each of its three tasks. */
  readonly rounds: number;
  /** The unit of leases, waits and work. */
  readonly stepMs: number;
  /** Names are made from this, so that runs on one store do not meet. */
  readonly stem: string;
  /** Whether some take turns in bursts: the store must reserve tokens. */
  readonly bursts: boolean;
};

const PERMITS = 3;
const KINDS = ["mutex", "read-write", "read-write", "semaphore", "burst"] as const;

function kindOf({ chance, bursts }: ContendOptions): number {
  return chance.between(0, bursts ? 4 : 3);
}

/** What a task takes: a kind of lock under a name that is always of that kind. */
type Target = {
  name: string;
  units: number;
  capacity: number;
  take: (options: AcquireOptions) => Promise<Hold | null>;
  /** A writer becomes a reader on the way. */
  downgrades?: boolean;
  /** Own tasks come first, so that nobody can say who overtook whom; their claims have the client's terms. */
  burst?: boolean;
};

/**
 * Several clients take, use and give back a few locks of every kind, each as chance has it, and everything is written
 * down. The history is filled while it runs, so that a run which hangs can be judged too.
 */
export function contend(options: ContendOptions): { readonly history: History; readonly done: Promise<void> } {
  const history = emptyHistory();
  const guard = new Map<string, number>();
  // In some runs all of them meet on one name, and neighbours in its queue are often of one client.
  const hotKind = options.chance.chance(0.4) ? kindOf(options) : null;
  const tasks = options.contenders.flatMap((contender, client) =>
    [0, 1, 2].map(() => new Task(options, contender, client, history, guard, hotKind).run()),
  );
  return { history, done: Promise.all(tasks).then(() => {}) };
}

class Task {
  readonly #options: ContendOptions;
  readonly #locks: Locks;
  readonly #clock: Clock;
  readonly #rate: number;
  readonly #client: number;
  readonly #history: History;
  /** The resource: the highest floor it has seen, by name. */
  readonly #guard: Map<string, number>;
  readonly #hotKind: number | null;

  constructor(
    options: ContendOptions,
    contender: Contender,
    client: number,
    history: History,
    guard: Map<string, number>,
    hotKind: number | null,
  ) {
    this.#options = options;
    this.#locks = contender.locks;
    this.#clock = contender.clock;
    this.#rate = contender.rate ?? 1;
    this.#client = client;
    this.#history = history;
    this.#guard = guard;
    this.#hotKind = hotKind;
  }

  async run(): Promise<void> {
    for (let round = 0; round < this.#options.rounds; round += 1) {
      await this.#sleep(this.#steps(0, 1));
      await this.#round();
    }
  }

  async #round(): Promise<void> {
    const target = this.#target();
    const attempt = {
      client: this.#client,
      name: target.name,
      askedAt: this.#now(),
      endedAt: null as number | null,
      outcome: "open" as "open" | "ok" | "fail" | "unknown",
    };
    this.#history.attempts.push(attempt);
    const queued = new Map<string, number>();
    const off = this.#locks.on("queued", ({ id }) => queued.set(id, this.#now()));
    let hold: Hold | null = null;
    try {
      hold = await target.take(this.#chosenOptions(target.burst === true));
      attempt.outcome = hold === null ? "fail" : "ok";
    } catch (error) {
      if (error instanceof Error && error.name === "AbortError") attempt.outcome = "fail";
      else if (error instanceof EngineUnavailableError) attempt.outcome = "unknown";
      else throw error;
    } finally {
      off();
      attempt.endedAt = this.#now();
    }
    const queuedAt = hold === null || target.burst ? undefined : queued.get(hold.id);
    if (hold !== null) await this.#use(hold, target, attempt.askedAt, queuedAt ?? null);
  }

  async #use(hold: Hold, target: Target, askedAt: number, queuedAt: number | null): Promise<void> {
    const { name, units, capacity } = target;
    const client = this.#client;
    const { id, token, floor } = hold;
    const now = this.#now();
    const deadline = now + hold.remainingMs / this.#rate;
    let held: Held = {
      client,
      name,
      id,
      units,
      capacity,
      token,
      floor,
      askedAt,
      queuedAt,
      grantedAt: now,
      deadline,
      endedAt: null,
      ended: "open",
    };
    this.#history.holds.push(held);
    const off = this.#locks.on("renewed", (event) => {
      if (event.id === id) held.deadline = this.#now() + event.remainingMs / this.#rate;
    });
    const end = (ended: "released" | "lost"): void => {
      if (held.ended === "open") Object.assign(held, { ended, endedAt: this.#now() });
    };
    if (hold.signal.aborted) end("lost");
    hold.signal.addEventListener("abort", () => end("lost"));
    for (let writes = this.#options.chance.between(0, 3); writes > 0; writes -= 1) {
      await this.#sleep(this.#steps(0, 1));
      this.#write(hold, held);
      if (target.downgrades && held.units > 1 && hold instanceof WriteHold && hold.state !== "lost") {
        end("released");
        held = readerOf(held, this.#now());
        this.#history.holds.push(held);
        await hold.downgrade().catch((error: unknown) => {
          if (!(error instanceof LockLostError || error instanceof EngineUnavailableError)) throw error;
        });
      }
    }
    // By throwIfLost(), which compares clocks: the signal may still be on its way.
    if (hold.state === "lost") end("lost");
    else end("released");
    off();
    try {
      await hold.release();
    } catch (error) {
      if (!(error instanceof LockLostError || error instanceof EngineUnavailableError)) throw error;
    }
  }

  /** A careful program checks first, a careless one does not: that is what the guard is for. */
  #write(hold: Hold, held: Held): void {
    const checked = hold.state !== "lost";
    const seen = this.#guard.get(held.name) ?? 0;
    const accepted = held.token >= seen;
    if (accepted) this.#guard.set(held.name, Math.max(seen, held.floor));
    this.#history.writes.push({ hold: held, at: this.#now(), checked, accepted });
  }

  #target(): Target {
    const { chance, stem } = this.#options;
    const kind = this.#hotKind ?? kindOf(this.#options);
    const name = `${stem} ${KINDS[kind]}`;
    if (kind === 0) {
      const mutex = this.#locks.mutex(name);
      return { name, units: 1, capacity: 1, take: (options) => mutex.tryAcquire(options) };
    }
    if (kind === 4) {
      const mutex = this.#locks.mutex(name, { burst: { holds: 3, ms: 2 * this.#options.stepMs } });
      return { name, units: 1, capacity: 1, take: (options) => mutex.tryAcquire(options), burst: true };
    }
    if (kind === 3) {
      const permits = chance.between(1, PERMITS);
      const semaphore = this.#locks.semaphore(name, PERMITS);
      return {
        name,
        units: permits,
        capacity: PERMITS,
        take: (options) => semaphore.tryAcquire({ ...options, permits }),
      };
    }
    const lock = this.#locks.readWrite(name);
    const writes = chance.chance(0.4);
    const take = (options: AcquireOptions) => (writes ? lock.write.tryAcquire(options) : lock.read.tryAcquire(options));
    return { name, units: writes ? READERS_MAX : 1, capacity: READERS_MAX, take, downgrades: chance.chance(0.3) };
  }

  #chosenOptions(burst: boolean): AcquireOptions {
    const { chance, stepMs } = this.#options;
    const leaseMs = Math.max(100, this.#steps(0.5, 3));
    const waitMs = chance.chance(0.15) ? 0 : Math.round(chance.chance(0.5) ? this.#steps(0.5, 10) : 1000 * stepMs);
    const abortable = chance.chance(0.15);
    const controller = new AbortController();
    if (abortable) this.#clock.after(this.#steps(0, 3), () => controller.abort());
    const leave = { waitMs, ...(abortable ? { signal: controller.signal } : {}) };
    if (burst) return leave;
    const minRemaining = chance.chance(0.2) ? { minRemainingMs: leaseMs * 0.4 } : {};
    return { ...leave, leaseMs, renew: chance.chance(0.7), ...minRemaining };
  }

  #now(): number {
    return this.#options.observer.now();
  }

  #steps(least: number, most: number): number {
    return this.#options.stepMs * (least + this.#options.chance.fraction() * (most - least));
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#clock.after(ms, resolve));
  }
}

function readerOf(writer: Held, now: number): Held {
  return { ...writer, units: 1, grantedAt: now, endedAt: null, ended: "open" };
}
