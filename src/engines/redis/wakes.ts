// Beyond the fixed set of files: how whoever waits is woken where the store keeps no queue.
import type { Clock, Timer } from "../../core/clock.js";
import { POLL_MAX_MS } from "../../core/limits.js";
import type { Subscription } from "./events.js";
import type { Layout } from "./layouts.js";

/** Whoever waits asks at least every `POLL_MAX_MS`: a name for which nobody asked for so long has no waiter. */
const KEPT_MS = 2 * POLL_MAX_MS;

export type WakesOptions = {
  readonly layout: Layout;
  /** For layouts that have one channel for all names. */
  readonly shared: string;
  /** Null: nothing is pushed, and whoever waits polls. */
  readonly subscription: Subscription | null;
  readonly clock: Clock;
  readonly woken: (name: string) => void;
};

/** Listens to the channels of the names that were refused to somebody, for as long as somebody is. */
export class Wakes {
  readonly #options: WakesOptions;
  /** By name: when it was refused last. Only where each name has a channel of its own. */
  readonly #refusedAt = new Map<string, number>();
  #timer: Timer | null = null;

  constructor(options: WakesOptions) {
    this.#options = options;
  }

  get live(): boolean {
    return this.#options.subscription?.live ?? false;
  }

  pushOf(name: string): { readonly channel: string; readonly message: string } {
    return this.#options.layout.push(name, this.#options.shared);
  }

  /** The name was refused to somebody who waits. */
  expect(name: string): void {
    const { subscription, shared, clock, woken } = this.#options;
    if (subscription === null) return;
    subscription.expectPush();
    const { channel } = this.pushOf(name);
    if (channel === shared) return;
    const known = this.#refusedAt.has(name);
    this.#refusedAt.set(name, clock.now());
    this.#timer ??= clock.after(KEPT_MS, this.#leaveOld);
    if (known) return;
    const tell = (): void => woken(name);
    // Before it was subscribed it may have been released: who waits asks again. A subscription that fails is made again
    // after the reconnect, which wakes all.
    subscription.add(channel, tell).then(tell, () => {});
  }

  close(): void {
    if (this.#timer !== null) this.#options.clock.cancel(this.#timer);
    this.#timer = null;
  }

  readonly #leaveOld = (): void => {
    const { subscription, clock } = this.#options;
    const before = clock.now() - KEPT_MS;
    for (const [name, at] of this.#refusedAt) {
      if (at > before) continue;
      this.#refusedAt.delete(name);
      // Where it fails the connection is gone, and with it the subscription.
      subscription?.remove(this.pushOf(name).channel).catch(() => {});
    }
    this.#timer = this.#refusedAt.size === 0 ? null : clock.after(KEPT_MS, this.#leaveOld);
  };
}
