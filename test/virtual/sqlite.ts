import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Clock, SystemClock, type Timer } from "../../src/core/clock.js";
import { sqliteEngine } from "../../src/engines/sqlite/index.js";
import { ThisMachine } from "../../src/engines/sqlite/machine.js";
import type { Setting } from "../../src/testing/conformance/kit.js";
import { FakeClock } from "../../src/testing/fake-clock.js";

/** The SQLite engine by a clock that is moved: leases, tombstones and tokens go by it, timers by real time. */
export async function virtual(): Promise<{ setting: Setting; close: () => Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-virtual-"));
  const clock = new FakeClock();
  const machine = Object.assign(new ThisMachine(), { now: () => clock.now() });
  const engine = async () => {
    const made = sqliteEngine(join(folder, "virtual.db"), { clock: new TimersInRealTime(clock), machine });
    await made.ready();
    return made;
  };
  return {
    setting: { engine, leaseStepMs: 1000, clock },
    close: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

/** A minute that passes in one step would run a thousand looks at the mailbox. */
class TimersInRealTime implements Clock {
  readonly #time: Clock;
  readonly #timers = new SystemClock();

  constructor(time: Clock) {
    this.#time = time;
  }

  now(): number {
    return this.#time.now();
  }

  wallMs(): number {
    return this.#time.wallMs();
  }

  after(ms: number, run: () => void): Timer {
    return this.#timers.after(ms, run);
  }

  cancel(timer: Timer): void {
    this.#timers.cancel(timer);
  }

  keepAlive(timer: Timer, alive: boolean): void {
    this.#timers.keepAlive(timer, alive);
  }
}
