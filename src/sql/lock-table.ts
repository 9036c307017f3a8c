import type { Cell, CellAnswer, CellWrite } from "../core/cells.js";
import type { Chance, Clock } from "../core/clock.js";
import type {
  CapacityAnswer,
  ClaimAnswer,
  ClaimRef,
  ClaimRequest,
  ReleaseAnswer,
  ReleaseRequest,
  RenewAnswer,
  RenewRequest,
} from "../core/engine.js";
import { RETRY_MIN_MS, TOMBSTONE_MS, waiterLeaseMs } from "../core/limits.js";
import { pause } from "../engine-kit/pause.js";
import { Batches } from "./batches.js";
import type { Database } from "./database.js";
import type { AnswerOf, Page, ParametersOf, Swept, Verb } from "./verbs.js";

/** The longest lease of a waiting claim, whatever its own lease. */
const WAITER_MAX_MS = waiterLeaseMs(Infinity);

export type LockTableTimes = { readonly clock: Clock; readonly chance: Chance; readonly callTimeoutMs: number };

/** The verbs of the lock table. This is the one place that maps requests to the parameters of the functions. */
export class LockTable {
  readonly #database: Database;
  readonly #times: LockTableTimes;
  readonly #batches: Batches;

  constructor(database: Database, times: LockTableTimes) {
    this.#database = database;
    this.#times = times;
    const { errors } = database;
    this.#batches = new Batches({
      clock: times.clock,
      limitMs: times.callTimeoutMs,
      connections: () => database.connections,
      alone: (verb, parameters) => this.#call(verb, parameters),
      together: (batch) => {
        const { client, listens } = database;
        return database.call("batch", { ...batch, tombstoneMs: TOMBSTONE_MS, client, listens });
      },
      unknown: (cause) => (errors.isAnswer(cause) ? null : errors.translated(cause)),
    });
  }

  claim({ name, id, units, capacity, leaseMs, wait, ...rest }: ClaimRequest): Promise<ClaimAnswer> {
    const { owner, data, exact = false, tokenAtLeast: atLeast = 0, reserve = 0 } = rest;
    const { client, listens } = this.#database;
    const leases = { leaseMs: Math.ceil(leaseMs), waiterMs: Math.ceil(waiterLeaseMs(leaseMs)) };
    const texts = { owner: JSON.stringify(owner), data: jsonOf(data) };
    return this.#batches.add("claim", {
      name,
      id,
      units,
      capacity,
      wait,
      exact,
      atLeast,
      reserve,
      client,
      listens,
      ...leases,
      ...texts,
    });
  }

  /** `if-missing` is treated as `always`: a tombstone is one more row in the same transaction, whatever is found there. */
  release({ name, id, tombstone, to }: ReleaseRequest): Promise<ReleaseAnswer> {
    const { client } = this.#database;
    const tombstones = { tombstone: tombstone !== "never", tombstoneMs: TOMBSTONE_MS };
    return this.#batches.add("release", { name, id, ...tombstones, to: to ?? null, client });
  }

  /** What was not sent yet is not sent any more. */
  close(): void {
    this.#batches.close();
  }

  renew(requests: readonly RenewRequest[]): Promise<readonly RenewAnswer[]> {
    const heartbeats = requests.map(
      ({ name, id, leaseMs = 0, tokenAtLeast = 0 }) => [name, id, Math.ceil(leaseMs), tokenAtLeast] as const,
    );
    return this.#call("renew", { heartbeats, waiterMaxMs: WAITER_MAX_MS });
  }

  resize({ name, id }: ClaimRef, units: number): Promise<AnswerOf<"resize">> {
    return this.#call("resize", { name, id, units });
  }

  setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return this.#call("setCapacity", { name, from, to });
  }

  inspect(page: ParametersOf<"inspect">): Promise<Page> {
    return this.#call("inspect", page);
  }

  sweep(batch: ParametersOf<"sweep">): Promise<Swept> {
    return this.#call("sweep", batch);
  }

  readCell(name: string): Promise<Cell> {
    return this.#call("readCell", { name });
  }

  writeCell({ name, operation, expected, value }: CellWrite): Promise<CellAnswer> {
    return this.#call("writeCell", { name, operation, expected, value: jsonOf(value), keepMs: TOMBSTONE_MS });
  }

  /** A call that was rolled back because of another is made again, until its time is over. */
  async #call<V extends Verb>(verb: V, parameters: ParametersOf<V>): Promise<AnswerOf<V>> {
    const { clock, chance, callTimeoutMs } = this.#times;
    const { errors } = this.#database;
    const until = clock.now() + callTimeoutMs;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#database.call(verb, parameters);
      } catch (cause) {
        const delayMs = RETRY_MIN_MS * attempt * (0.2 + chance.fraction());
        if (!errors.isTransient(cause, attempt) || clock.now() + delayMs > until) throw errors.translated(cause);
        await pause(clock, delayMs);
      }
    }
  }
}

/** JSON, because a database's text cannot hold every string: the character NUL, half a surrogate pair. */
function jsonOf(text: string | null | undefined): string | null {
  return text === undefined || text === null ? null : JSON.stringify(text);
}
