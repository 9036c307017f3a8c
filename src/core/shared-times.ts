import { MonotonicClock, machineMs } from "./clock.js";

const [PROGRESS, OFFSET, FIRST_SLOT] = [0, 1, 2];
const BYTES = BigInt64Array.BYTES_PER_ELEMENT;

/**
 * What the thread of the program and the thread that renews for it tell each other while one of them stands still. All times are
 * in microseconds, those of slots by the program's own clock.
 */
export class SharedTimes {
  readonly buffer: SharedArrayBuffer;
  readonly #times: BigInt64Array;

  constructor(buffer: SharedArrayBuffer) {
    this.buffer = buffer;
    this.#times = new BigInt64Array(buffer);
  }

  /** For so many holds at most; it takes memory as they come. */
  static of(slots: number): SharedTimes {
    const first = FIRST_SLOT * BYTES;
    const times = new SharedTimes(new SharedArrayBuffer(first, { maxByteLength: first + slots * BYTES }));
    Atomics.store(times.#times, OFFSET, 2n ** 62n);
    return times;
  }

  /** The program's thread runs: `now` is what its clock says. */
  progress(now: number): void {
    const machine = machineMs();
    Atomics.store(this.#times, PROGRESS, micros(machine));
    // Read after `now`, so that the offset is never too small: a time that is taken from it is never later than the program's. What it was too
    // large by, because the thread stood still between the two, is corrected the next time.
    const offset = micros(machine - now);
    if (offset < Atomics.load(this.#times, OFFSET)) Atomics.store(this.#times, OFFSET, offset);
  }

  /** How long the program's thread has told nothing. */
  silentMs(): number {
    return machineMs() - millis(Atomics.load(this.#times, PROGRESS));
  }

  /** The program's time, or a little less. */
  now(): number {
    return machineMs() - millis(Atomics.load(this.#times, OFFSET));
  }

  /** A hold begins there: nothing of an earlier one is left. False where there is no such slot. */
  clear(slot: number): boolean {
    const bytes = (FIRST_SLOT + slot + 1) * BYTES;
    if (bytes > this.buffer.maxByteLength) return false;
    if (this.buffer.byteLength < bytes) this.buffer.grow(bytes);
    Atomics.store(this.#times, FIRST_SLOT + slot, 0n);
    return true;
  }

  /** The store confirmed the hold until then. */
  confirm(slot: number, deadline: number): void {
    const at = micros(deadline);
    if (at > Atomics.load(this.#times, FIRST_SLOT + slot)) Atomics.store(this.#times, FIRST_SLOT + slot, at);
  }

  confirmedUntil(slot: number): number {
    return millis(Atomics.load(this.#times, FIRST_SLOT + slot));
  }
}

/** Rounded down: a deadline is never later than it was. */
function micros(ms: number): bigint {
  return BigInt(Math.floor(ms * 1000));
}

function millis(micros: bigint): number {
  return Number(micros) / 1000;
}

/** The program's time in the thread that renews for it. */
export class SharedClock extends MonotonicClock {
  readonly #times: SharedTimes;

  constructor(times: SharedTimes) {
    super();
    this.#times = times;
  }

  override now(): number {
    return this.#times.now();
  }
}
