import { NotAcquired } from "../core/cancellation.js";
import { checkKnown, optionsAndCallback, shown } from "../core/checks.js";
import { runHolding } from "../core/context.js";
import { AcquireTimeoutError, InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import { type AcquireOptions, checkTerms, type Terms } from "../core/options.js";
import { givingBack, Lock } from "./lock.js";
import { MultiHold } from "./multi-hold.js";
import { storeIdentity } from "./store-identity.js";
import { waitUntil } from "./wait-until.js";

/** How to take several locks: `waitMs` is the time for all of them together; the rest is each lock's own. */
export type MultiOptions = Pick<AcquireOptions, (typeof OPTIONS)[number]>;

const OPTIONS = ["waitMs", "leaseMs", "renew", "maxHoldMs", "signal", "label", "detectDeadlockAfterMs"] as const;

/**
 * Several locks as one, all or none, of one store or several. They are taken one by one in an order that all programs
 * share, by store and then by name, so that two programs which want the same locks cannot wait for each other.
 */
export class MultiLock {
  readonly #locks: readonly Lock<Hold>[];

  /** @internal */
  constructor(locks: readonly Lock<Hold>[]) {
    if (!Array.isArray(locks) || locks.length === 0 || !locks.every((lock) => lock instanceof Lock)) {
      throw new InvalidOptionError("locks", shown(locks), "a list of locks: mutexes, read or write sides, semaphores");
    }
    this.#locks = [...locks];
    refuseDuplicates(this.#locks.map((lock) => ({ store: Lock.clientOf(lock).engine, lock })));
  }

  /** Take them all. Throws `AcquireTimeoutError`, for the lock that was busy, when `waitMs` is over; then none is held. */
  async acquire(options: MultiOptions = {}): Promise<MultiHold> {
    return this.#take(options, undefined);
  }

  /** Take them all if they are free now, or within `waitMs`; null when one is busy, and then none is held. */
  async tryAcquire(options: MultiOptions = {}): Promise<MultiHold | null> {
    try {
      return await this.#take(options, 0);
    } catch (error) {
      if (error instanceof AcquireTimeoutError) return null;
      throw error;
    }
  }

  /** Hold them all while `run` runs, and give them back on every way out. */
  using<T>(run: (hold: MultiHold) => T | PromiseLike<T>): Promise<T>;
  using<T>(options: MultiOptions | undefined, run: (hold: MultiHold) => T | PromiseLike<T>): Promise<T>;
  async using<T>(
    first: MultiOptions | undefined | ((hold: MultiHold) => T | PromiseLike<T>),
    second?: (hold: MultiHold) => T | PromiseLike<T>,
  ): Promise<T> {
    const [options = {}, run] = optionsAndCallback<MultiOptions, (hold: MultiHold) => T | PromiseLike<T>>(
      "run",
      first,
      second,
    );
    const hold = await this.acquire(options);
    return givingBack(this.#client(), hold, this.#names(), async () => runHolding(hold.holds, () => run(hold)));
  }

  async #take(options: MultiOptions, defaultWaitMs: number | undefined): Promise<MultiHold> {
    checkKnown(options, OPTIONS);
    const { clock, settings } = this.#client();
    const { waitMs, signal } = checkTerms(options, { leaseMs: settings.leaseMs, waitMs: defaultWaitMs });
    const until = waitMs === undefined ? undefined : clock.now() + waitMs;
    const left = () => (until === undefined ? {} : { waitMs: Math.max(0, until - clock.now()) });
    const inOrder = await this.#inOrder(() => ({ waitMs: undefined, ...left(), signal }));
    const taken: Hold[] = [];
    try {
      for (const lock of inOrder) {
        const acquire = (): Promise<Hold> => lock.acquire({ ...options, ...left() });
        // Whoever looks for a deadlock must know that this wait keeps what was taken so far. Nobody else pays for the list.
        const detects = options.detectDeadlockAfterMs ?? Lock.clientOf(lock).settings.detectDeadlockAfterMs;
        taken.push(await (detects === undefined ? acquire() : runHolding(taken, acquire)));
      }
      // While the later ones were waited for, an earlier one may have been lost.
      for (const hold of taken) hold.throwIfLost();
    } catch (error) {
      // Stop at the first failure, and leave nothing behind (`pitfalls.md` 48).
      await giveBack(taken).catch((cause: unknown) => this.#warn(cause));
      throw error;
    }
    const places = new Map(inOrder.map((lock, at) => [lock, at]));
    const asGiven = this.#locks.map((lock) => taken[places.get(lock) ?? -1] as Hold);
    return new MultiHold(asGiven, () => giveBack(taken));
  }

  /** One store needs no name; several are told apart by what they say of themselves. */
  async #inOrder(left: () => Pick<Terms, "waitMs" | "signal">): Promise<Lock<Hold>[]> {
    const clients = new Map(this.#locks.map((lock) => [Lock.clientOf(lock).engine, Lock.clientOf(lock)]));
    const identities = new Map<unknown, string>();
    if (clients.size > 1) {
      for (const [engine, client] of clients) {
        const name = "the identity of a store";
        const look = (): Promise<string> => storeIdentity(client);
        const identity = await waitUntil(client, left(), { name, check: look });
        if (identity instanceof NotAcquired) throw new AcquireTimeoutError(name, identity.waitedMs, undefined);
        identities.set(engine, identity);
      }
    }
    const placed = this.#locks.map((lock) => ({ store: identities.get(Lock.clientOf(lock).engine) ?? "", lock }));
    refuseDuplicates(placed);
    return placed
      .toSorted((a, b) => compareBytes(a.store, b.store) || compareBytes(a.lock.name, b.lock.name))
      .map(({ lock }) => lock);
  }

  #client() {
    return Lock.clientOf(this.#locks[0] as Lock<Hold>);
  }

  #names(): string {
    return this.#locks.map((lock) => lock.name).join(", ");
  }

  #warn(cause: unknown): void {
    const message = `${this.#names()}: not all were given back cleanly after one of them failed`;
    this.#client().events.emit("warning", () => ({ message, cause }));
  }
}

/** In reverse order; all of them, whatever becomes of one. */
async function giveBack(taken: readonly Hold[]): Promise<void> {
  const answers = await Promise.allSettled(taken.toReversed().map((hold) => hold.release()));
  for (const answer of answers) if (answer.status === "rejected") throw answer.reason;
}

function refuseDuplicates(placed: readonly { readonly store: unknown; readonly lock: Lock<Hold> }[]): void {
  const names = new Map<unknown, Set<string>>(placed.map(({ store }) => [store, new Set()]));
  for (const { store, lock } of placed) {
    if (names.get(store)?.has(lock.name))
      throw new MisuseError(`"${lock.name}" stands twice in the list: its second taking would wait for the first.`);
    names.get(store)?.add(lock.name);
  }
}

function compareBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
