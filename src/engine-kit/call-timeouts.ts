import type { Clock, Timer } from "../core/clock.js";
import { LinkedList, type Node } from "./linked-list.js";

interface Pending extends Node<Pending> {
  readonly at: number;
  readonly failed: (cause: unknown) => void;
  over: boolean;
}

/**
 * A time limit for every call to a client library, the same for all: libraries queue while they are offline and have no
 * limit of their own. With one limit the oldest call is the first to expire, so one timer watches over any number; it
 * is left to run out while calls come and go, because starting one for each would cost more.
 */
export class CallTimeouts {
  readonly #clock: Clock;
  readonly #limitMs: number;
  readonly #expired: () => void;
  /** Not a Set: calls come and go all the time, and what it has outgrown would keep them alive (see `Register`). */
  readonly #pending = new LinkedList<Pending>();
  #timer: Timer | null = null;

  /** `expired` is told of calls that were not answered in time: the connection may be silent for ever. */
  constructor(clock: Clock, limitMs: number, expired: () => void = () => {}) {
    this.#clock = clock;
    this.#limitMs = limitMs;
    this.#expired = expired;
  }

  /** What arrives too late is given to `late`: nobody else would clean it up. */
  limit<T>(call: Promise<T>, late?: (answer: T) => void): Promise<T> {
    return new Promise((resolve, reject) => this.watch(call, resolve, reject, late));
  }

  /** The same by callbacks, which must not throw: where every lock pays for it, a promise for each layer is the main cost. */
  watch<T>(
    call: Promise<T>,
    answered: (answer: T) => void,
    failed: (cause: unknown) => void,
    late?: (answer: T) => void,
  ): void {
    const at = this.#clock.now() + this.#limitMs;
    const pending: Pending = { at, failed, over: false, before: null, after: null };
    this.#pending.push(pending);
    this.#timer ??= this.#clock.after(this.#limitMs, () => this.#look(true));
    call.then(
      (answer) => {
        if (this.#end(pending)) answered(answer);
        else late?.(answer);
      },
      (cause: unknown) => {
        if (this.#end(pending)) failed(cause);
      },
    );
  }

  /** Nobody waits any longer. */
  close(): void {
    for (const pending of this.#pending) this.#expire(pending);
    this.#stop();
  }

  /** False when it had ended before. */
  #end(pending: Pending): boolean {
    if (pending.over) return false;
    pending.over = true;
    this.#pending.remove(pending);
    return true;
  }

  #expire(pending: Pending): void {
    this.#end(pending);
    pending.failed(new Error(`no answer within ${Math.round(this.#limitMs)} ms`));
  }

  #stop(): void {
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }

  /**
   * Over time at the first look: one more turn of the event loop. Where the process stood still, its timers come before the
   * answers that arrived meanwhile, and those are no silence.
   */
  #look(first: boolean): void {
    this.#timer = null;
    const now = this.#clock.now();
    for (const pending of this.#pending) {
      const leftMs = pending.at - now;
      if (leftMs > 0 || first) {
        this.#timer = this.#clock.after(Math.max(0, leftMs), () => this.#look(leftMs > 0));
        return;
      }
      this.#expire(pending);
      this.#expired();
    }
  }
}
