import { checkCount } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { CapacityMismatchError } from "../core/errors.js";
import { Hold } from "../core/hold.js";
import { READERS_MAX } from "../core/limits.js";
import type { Ask } from "../core/options.js";
import { type AcquireOptions } from "../core/options.js";
import { Lock } from "./lock.js";

export interface PermitOptions extends AcquireOptions {
  /** How many permits to take at once, all or none; 1 unless said otherwise. */
  readonly permits?: number;
}

/** At most `capacity` permits out at a time, in order of arrival; each hold has its own lease, so a crash leaks none. */
export class Semaphore extends Lock<Hold, PermitOptions> {
  #capacity: number;

  /** @internal */
  constructor(client: Client, name: string, capacity: number) {
    checkCapacity("capacity", capacity);
    super(client, {
      ask: { name, units: 1, capacity },
      reentrant: false,
      hold: Hold,
      mine: () => true,
    });
    this.#capacity = capacity;
  }

  get capacity(): number {
    return this.#capacity;
  }

  /** How many permits nobody holds, when the store is asked. Waiters may be before you. */
  async available(): Promise<number> {
    const state = await this.client.state(this.name);
    if (state === undefined) return this.#capacity;
    const taken = state.holders.reduce((sum, holder) => sum + holder.units, 0);
    return Math.max(0, state.capacity - taken);
  }

  /**
   * Change the capacity for everybody while the name is in use, and for this object from now on. Holders keep what they
   * have; waiters that now fit are let in, and those that never will are refused. Throws `CapacityMismatchError` when the
   * name is in use with yet another capacity.
   */
  async resize(capacity: number): Promise<void> {
    checkCapacity("capacity", capacity);
    const answer = await this.client.setCapacity(this.name, this.#capacity, capacity);
    if (answer.kind === "mismatch") throw new CapacityMismatchError(this.name, this.#capacity, answer.capacity);
    this.#capacity = capacity;
  }

  protected override ask({ permits = 1 }: PermitOptions): Ask {
    const capacity = this.#capacity;
    return { name: this.name, units: checkCount("permits", permits, 1, capacity), capacity };
  }

  protected override shared({ permits: _, ...shared }: PermitOptions): AcquireOptions {
    return shared;
  }
}

function checkCapacity(option: string, capacity: number): void {
  checkCount(option, capacity, 1, READERS_MAX - 1);
}
