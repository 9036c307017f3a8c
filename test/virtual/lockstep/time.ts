import { FakeClock } from "../../../src/testing/fake-clock.js";
import { SeededChance } from "../../../src/testing/seeded-chance.js";

/** Ends of leases that differ by less than this may come in any order; commands are sent at multiples of `TICK_MS` only. */
const STEP_MS = 1_000;
export const TICK_MS = 4_000;

/**
 * A clock for engines on a real server: it moves only when told, and waits after each step until what the engines asked the
 * server in that step is answered.
 */
export class VirtualTime extends FakeClock {
  #underWay = 0;
  /** After each step, before the answers. */
  onStep: () => Promise<void> = async () => {};

  async track<T>(call: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await call();
    } finally {
      this.#underWay -= 1;
    }
  }

  /** Nothing is under way, and what the last answer led to was asked. */
  async quiet(): Promise<void> {
    for (let turns = 0; turns < 3; turns += 1) {
      while (this.#underWay > 0) await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#underWay > 0) turns = -1;
    }
  }

  override async advance(ms: number, stepMs = STEP_MS): Promise<void> {
    await this.quiet();
    for (let left = ms; left > 0; left -= stepMs) {
      await super.advance(Math.min(left, stepMs));
      await this.onStep();
      await this.quiet();
    }
  }
}

/** What becomes of a request: a part of them is not sent, a part is not answered, a part arrives later than it failed. */
export class Wire {
  /** Of all requests; 0: a reliable connection. */
  bad = 0;
  /** So many failed so far. */
  failures = 0;
  readonly #chance: SeededChance;
  readonly #failed: () => Error;
  #late: { after: number; send: () => Promise<unknown> }[] = [];

  constructor(seed: number, failed: () => Error) {
    this.#chance = new SeededChance(seed);
    this.#failed = failed;
  }

  async send<T>(call: () => Promise<T>, mayBeLate = false): Promise<T> {
    if (!this.#chance.chance(this.bad)) return this.#sent(call);
    this.failures += 1;
    const what = this.#chance.between(0, mayBeLate ? 2 : 1);
    if (what === 0) throw this.#failed();
    if (what === 2) this.#late.push({ after: this.#chance.between(1, 12), send: call });
    else await this.#sent(call);
    throw this.#failed();
  }

  async #sent<T>(call: () => Promise<T>): Promise<T> {
    const due = this.#late.filter((one) => (one.after -= 1) <= 0);
    this.#late = this.#late.filter((one) => one.after > 0);
    for (const { send } of due) await send().catch(() => {});
    return call();
  }

  /** Everything that is still on its way arrives. */
  async flush(): Promise<void> {
    const late = this.#late;
    this.#late = [];
    for (const { send } of late) await send().catch(() => {});
  }
}
