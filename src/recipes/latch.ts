import { NotAcquired } from "../core/cancellation.js";
import { checkCount } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { MisuseError, WaitTimeoutError } from "../core/errors.js";
import { type Seen, SharedValue } from "./cell.js";
import { checkWait, type WaitOptions, waitUntil } from "./wait-until.js";

/** What is kept: how much is left, and of how much, so that programs which disagree find out. Redisson keeps only the first. */
type Kept = { readonly left: number; readonly of?: number };

/**
 * Opens when it has been counted down to zero, and stays open. Nobody holds anything: a waiter that crashes leaves no trace,
 * and a countdown whose answer was lost counts once.
 */
export class Latch {
  readonly name: string;
  readonly #client: Client;
  readonly #kept: SharedValue<Kept>;
  #of: number;

  /** @internal */
  constructor(client: Client, name: string, count: number) {
    this.name = name;
    this.#client = client;
    this.#of = checkCount("count", count, 1, Number.MAX_SAFE_INTEGER);
    this.#kept = new SharedValue(client, "latch", name);
  }

  /** What is left to count down. */
  async count(): Promise<number> {
    return this.#left((await this.#kept.read()).value);
  }

  /** Count down, to zero at most; answers what is left. */
  async countDown(by = 1): Promise<number> {
    checkCount("by", by, 1, Number.MAX_SAFE_INTEGER);
    const { value } = await this.#kept.update((kept) => {
      const left = this.#left(kept);
      return left === 0 ? undefined : { left: Math.max(0, left - by), of: this.#of };
    });
    return this.#left(value);
  }

  /** Resolves when the latch is open. Throws `WaitTimeoutError` when `waitMs` is over. */
  async wait(options: WaitOptions = {}): Promise<void> {
    const terms = checkWait(this.#client, options);
    let last: Seen<Kept> | null = null;
    const opened = await waitUntil(this.#client, terms, {
      name: this.name,
      watch: (changed) => this.#kept.watch(changed),
      check: async () => {
        const seen = await this.#kept.read();
        // Only at first: later it may have been reset to another count, which waiters outlast.
        if (last === null) this.#left(seen.value);
        last = seen;
        return seen.value?.left === 0 ? seen : null;
      },
    });
    if (!(opened instanceof NotAcquired)) return;
    // `last` is set by a callback, which the compiler does not see.
    const kept = (last as Seen<Kept> | null)?.value;
    throw new WaitTimeoutError(
      this.name,
      opened.waitedMs,
      `${kept?.left ?? this.#of} of the latch is still to be done`,
    );
  }

  /**
   * Close it again at `count`, for everybody; waiters go on waiting. Without a count: back to where it began, and nothing
   * of it is left in the store.
   */
  async reset(count?: number): Promise<void> {
    if (count !== undefined) checkCount("count", count, 1, Number.MAX_SAFE_INTEGER);
    await this.#kept.update((kept) => {
      if (count === undefined) return kept === null ? undefined : null;
      return { left: count, of: count };
    });
    this.#of = count ?? this.#of;
  }

  #left(kept: Kept | null): number {
    if (kept === null) return this.#of;
    if (kept.of === undefined || kept.of === this.#of) return kept.left;
    throw new MisuseError(
      `"${this.name}" is in use as a latch of ${kept.of}, not of ${this.#of}; all must agree on it.`,
    );
  }
}
