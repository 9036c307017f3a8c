import type { Clock, Timer } from "./clock.js";
import type { Deadlines } from "./deadlines.js";
import type { RenewAnswer } from "./engine.js";
import type { Held, Renewals } from "./renew-loop.js";
import type { SharedTimes } from "./shared-times.js";

/** To the thread that renews. Times are by the program's clock. */
export type ToWorker =
  | {
      readonly kind: "add";
      readonly slot: number;
      readonly name: string;
      readonly id: string;
      readonly leaseMs: number;
      /** As the store knows it. */
      readonly token: number;
      readonly leftMs: number;
      readonly heartbeatAt: number;
      /** When to stop. */
      readonly until: number;
    }
  | { readonly kind: "remove" | "send-soon"; readonly slot: number }
  | { readonly kind: "close" };

export type FromWorker =
  | { readonly kind: "ready" }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "answered"; readonly slot: number; readonly answer: RenewAnswer; readonly sentAt: number }
  /** Nothing will be told of this slot any more. */
  | { readonly kind: "removed"; readonly slot: number }
  | { readonly kind: "unavailable"; readonly message: string };

/** How often progress is told, in parts of the time after which a thread counts as hung. */
const REPORTS = 4;

/**
 * The heartbeats of holds, sent by another thread for as long as this one shows progress: a synchronous loop does not lose its lock,
 * and a program that hangs does not keep it. Deadlines stay here.
 */
export class WorkerRenewals implements Renewals {
  readonly #send: (message: ToWorker) => void;
  readonly #times: SharedTimes;
  readonly #clock: Clock;
  readonly #deadlines: Deadlines;
  readonly #reportEveryMs: number;
  /** When that thread is gone. */
  readonly #fallback: Renewals;
  readonly #slots = new Map<Held, number>();
  readonly #held: (Held | null)[] = [];
  /** Slots that the other thread writes to no more. */
  readonly #free: number[] = [];
  #timer: Timer | null = null;
  #gone = false;

  constructor(
    send: (message: ToWorker) => void,
    times: SharedTimes,
    { clock, deadlines, renewLoop }: { clock: Clock; deadlines: Deadlines; renewLoop: Renewals },
    stallMs: number,
  ) {
    this.#send = send;
    this.#times = times;
    this.#clock = clock;
    this.#deadlines = deadlines;
    this.#fallback = renewLoop;
    this.#reportEveryMs = stallMs / REPORTS;
  }

  add(held: Held, heartbeatAt: number, now: number): void {
    if (this.#gone) return this.#fallback.add(held, heartbeatAt, now);
    const slot = this.#free.pop() ?? this.#held.length;
    // Slots come back by messages, which whoever takes and lets go without a pause does not hear.
    if (!this.#times.clear(slot)) return this.#fallback.add(held, heartbeatAt, now);
    this.#held[slot] = held;
    this.#slots.set(held, slot);
    // When that is the other thread knows. Not Infinity: it is renewed.
    held.heartbeatAt = heartbeatAt;
    // At once: this thread may do nothing else for a long time from here on.
    this.#report();
    const { name, id, leaseMs } = held.claim;
    const { storeToken: token, leftMs, renewUntil: until } = held;
    this.#send({ kind: "add", slot, name, id, leaseMs, token, leftMs, heartbeatAt, until });
    this.proceed(held, now);
  }

  remove(held: Held): void {
    const slot = this.#slots.get(held);
    if (slot === undefined) return this.#fallback.remove(held);
    this.#slots.delete(held);
    this.#held[slot] = null;
    held.heartbeatAt = Infinity;
    this.#send({ kind: "remove", slot });
    if (this.#slots.size === 0) this.#rest();
  }

  sendSoon(held: Held): void {
    const slot = this.#slots.get(held);
    if (slot === undefined) return this.#fallback.sendSoon(held);
    this.#report();
    this.#send({ kind: "send-soon", slot });
  }

  proceed(held: Held, now: number): void {
    if (!this.#slots.has(held)) return this.#fallback.proceed(held, now);
    this.#deadlines.set(held.moment, held, held.nextMoment(now), now);
  }

  /** What the other thread was told while this one could not listen. */
  confirmedUntil(held: Held): number {
    const slot = this.#slots.get(held);
    return slot === undefined ? -Infinity : this.#times.confirmedUntil(slot);
  }

  answered(slot: number, answer: RenewAnswer, sentAt: number): void {
    this.#held[slot]?.answered(answer, sentAt);
  }

  removed(slot: number): void {
    if (!this.#gone) this.#free.push(slot);
  }

  /** The other thread ended: from now on this one sends. */
  lostWorker(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#rest();
    const now = this.#clock.now();
    // Before the slots are forgotten: what the other thread was told while this one stood still counts.
    const living = [...this.#slots.keys()].filter((held) => held.ended === null && now < held.renewUntil);
    this.#slots.clear();
    for (const held of living) this.#fallback.add(held, -Infinity, now);
  }

  stop(): void {
    this.#gone = true;
    this.#slots.clear();
    this.#rest();
  }

  #report(): void {
    this.#times.progress(this.#clock.now());
    if (this.#timer !== null) return;
    this.#timer = this.#clock.after(this.#reportEveryMs, () => {
      this.#timer = null;
      this.#report();
    });
    this.#clock.keepAlive?.(this.#timer, false);
  }

  #rest(): void {
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timer = null;
  }
}
