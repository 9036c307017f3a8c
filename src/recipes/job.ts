import { NotAcquired } from "../core/cancellation.js";
import { checkFunction, checkKnown, checkLease, checkNumber } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { runHolding } from "../core/context.js";
import { AcquireTimeoutError, UnsupportedError } from "../core/errors.js";
import { Hold } from "../core/hold.js";
import type { Owner } from "../core/inspect.js";
import { LEASE_MIN_MS, TIMER_MAX_MS } from "../core/limits.js";
import { checkName } from "../core/name.js";
import { type AcquireOptions, checkTerms } from "../core/options.js";
import { acquire } from "../core/wait.js";
import { givingBack, Lock } from "./lock.js";

export interface JobOptions extends Pick<AcquireOptions, "leaseMs" | "label"> {
  /** The job loses its lock after this, however long it goes on: up to a third of a lease earlier, never later. */
  readonly atMostForMs?: number;
  /** For so long after its start it is not run again, by anybody, even if it ends or its process dies before. */
  readonly atLeastForMs?: number;
}

/** `holder`: who runs it instead, where the store says so; nobody when it ran a moment ago. */
export type JobResult<T> =
  | { readonly ran: true; readonly value: T; readonly token: number }
  | { readonly ran: false; readonly holder?: Owner };

/** Work that one program at a time does, and the others leave to it instead of waiting. */
export class Job {
  readonly name: string;
  readonly #client: Client;
  /** A mutex, but not a re-entrant one: a job inside of itself would run twice at a time. */
  readonly #lock: Lock<Hold>;
  readonly #take: AcquireOptions;
  readonly #pauseName: string;
  readonly #atLeastForMs: number | undefined;

  /** @internal */
  constructor(client: Client, name: string, options: JobOptions) {
    checkKnown(options, ["leaseMs", "label", "atMostForMs", "atLeastForMs"]);
    const { atMostForMs, atLeastForMs, leaseMs = client.settings.leaseMs, ...rest } = options;
    this.name = name;
    this.#client = client;
    const ask = { name, units: 1, capacity: 1, kind: "job" } as const;
    this.#lock = new Lock(client, { ask, reentrant: false, hold: Hold, mine: () => true });
    this.#take = { ...rest, ...limits(checkLease(leaseMs), atMostForMs) };
    this.#pauseName = atLeastForMs === undefined ? name : checkName(`${name}/at-least`);
    this.#atLeastForMs = atLeastForMs === undefined ? undefined : checkLease(atLeastForMs, "atLeastForMs");
    if (atLeastForMs !== undefined && client.engine.guarantees.crashRelease === "session") {
      const missing = "what it keeps ends with the session of its process, so atLeastForMs cannot outlive it";
      throw new UnsupportedError(
        client.engine.kind,
        missing,
        "Leave it out, or use an engine whose holds live by lease.",
      );
    }
  }

  /**
   * Run it here and now, unless it runs elsewhere or ran less than `atLeastForMs` ago. Rejects with what `run` rejects with, or
   * with `LockLostError` when the lock was lost on the way.
   */
  run<T>(run: (hold: Hold) => T | PromiseLike<T>): Promise<JobResult<T>> {
    return this.runWithin(0, run);
  }

  /** The same, waiting for a run elsewhere to end. @internal */
  async runWithin<T>(waitMs: number, run: (hold: Hold) => T | PromiseLike<T>): Promise<JobResult<T>> {
    checkFunction("run", run);
    let hold: Hold;
    try {
      hold = await this.#lock.acquire({ ...this.#take, waitMs });
    } catch (error) {
      if (!(error instanceof AcquireTimeoutError)) throw error;
      return { ran: false, ...(error.holder === undefined ? {} : { holder: error.holder }) };
    }
    const begun = async (): Promise<JobResult<T>> =>
      (await this.#begin()) ? { ran: true, token: hold.token, value: await run(hold) } : { ran: false };
    return givingBack(this.#client, hold, this.name, () => runHolding([hold], begun));
  }

  /** A claim of its own for the pause: it is left to its lease, so that nothing has to be alive for it to end in time. */
  async #begin(): Promise<boolean> {
    if (this.#atLeastForMs === undefined) return true;
    const { settings } = this.#client;
    const terms = checkTerms({ leaseMs: this.#atLeastForMs, renew: false }, { leaseMs: settings.leaseMs, waitMs: 0 });
    const ask = { name: this.#pauseName, units: 1, capacity: 1, leaseOnly: true, untraced: true } as const;
    const taken = await acquire(this.#client, ask, terms);
    if (taken instanceof NotAcquired) return false;
    new Hold(taken).handOver();
    return true;
  }
}

/** A renewed lease, so that a crash is noticed soon; but for a time shorter than one lease, a fixed one. */
function limits(leaseMs: number, atMostForMs: number | undefined): AcquireOptions {
  if (atMostForMs === undefined) return { leaseMs };
  checkNumber("atMostForMs", atMostForMs, LEASE_MIN_MS, TIMER_MAX_MS, "milliseconds");
  return atMostForMs <= leaseMs
    ? { leaseMs: atMostForMs, renew: false }
    : { leaseMs, maxHoldMs: Math.max(1, atMostForMs - leaseMs) };
}
