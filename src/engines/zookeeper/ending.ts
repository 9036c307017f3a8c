import type { Clock, Timer } from "../../core/clock.js";

/** An end that is put off again and again: the timer is left alone, and looks again when it fires. */
export class Ending {
  at = Infinity;
  readonly #clock: Clock;
  readonly #run: () => void;
  #timer: Timer | null = null;

  constructor(clock: Clock, run: () => void) {
    this.#clock = clock;
    this.#run = run;
  }

  /** Never to an earlier time than the timer's. */
  putOffTo(at: number): void {
    this.at = at;
    this.#timer ??= this.#clock.after(Math.max(0, at - this.#clock.now()), () => {
      this.#timer = null;
      if (this.#clock.now() < this.at) this.putOffTo(this.at);
      else this.#run();
    });
  }

  cancel(): void {
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }
}
