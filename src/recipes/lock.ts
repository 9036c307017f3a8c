import { NotAcquired } from "../core/cancellation.js";
import { checkObject, optionsAndCallback } from "../core/checks.js";
import type { Client } from "../core/client.js";
import { reentered, runHolding } from "../core/context.js";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Grant } from "../core/grant.js";
import type { Hold } from "../core/hold.js";
import type { HolderState } from "../core/inspect.js";
import { EXACT_CAPACITY_MAX } from "../core/limits.js";
import { type AcquireOptions, type Ask, checkTerms, type Terms } from "../core/options.js";
import { startAcquiring } from "../core/wait.js";
import { takeUnlessDeadlocked } from "./deadlock.js";

const NO_OPTIONS: AcquireOptions = {};

/** What sets one lock-like recipe apart from another: data. */
export type Shape<H extends Hold> = {
  readonly ask: Ask;
  /** May the same flow of control take it again? Permits add up instead. */
  readonly reentrant: boolean;
  readonly hold: new (grant: Grant) => H;
  /** Which of the name's holders hold this. */
  readonly mine: (holder: HolderState) => boolean;
};

/** Something that can be taken by name: mutex, either side of a read-write lock, semaphore. */
export class Lock<H extends Hold, Options extends AcquireOptions = AcquireOptions> {
  protected readonly client: Client;
  readonly #shape: Shape<H>;

  /** @internal */
  constructor(client: Client, shape: Shape<H>) {
    this.client = client;
    this.#shape = shape;
  }

  get name(): string {
    return this.#shape.ask.name;
  }

  /** @internal */
  static clientOf(lock: Lock<Hold>): Client {
    return lock.client;
  }

  /**
   * Take it, waiting for its turn. Throws `AcquireTimeoutError` when `waitMs` is over, the signal's reason when that aborts.
   *
   * ```js
   * const hold = await locks.mutex("invoice:42").acquire({ waitMs: 500 });
   * try {
   *   await charge(invoice, { signal: hold.signal, token: hold.token });
   * } finally {
   *   await hold.release();
   * }
   * ```
   */
  acquire(options?: Options): Promise<H> {
    return new Promise((resolve, reject) => {
      const done = (taken: Grant | NotAcquired): void => {
        if (taken instanceof NotAcquired) reject(taken.error(this.name));
        else resolve(new this.#shape.hold(taken));
      };
      this.#take(options, undefined, done, reject);
    });
  }

  /** Take it if it is free now, or within `waitMs`; null when it is busy. A store that does not answer is still an error. */
  tryAcquire(options?: Options): Promise<H | null> {
    return new Promise((resolve, reject) => {
      const done = (taken: Grant | NotAcquired): void =>
        resolve(taken instanceof NotAcquired ? null : new this.#shape.hold(taken));
      this.#take(options, 0, done, reject);
    });
  }

  /**
   * Hold it while `run` runs, and give it back on every way out. Inside, the same flow of control may take the lock again;
   * work started in parallel inside shares the hold. Rejects with `LockLostError` when the lock was lost on the way.
   */
  using<T>(run: (hold: H) => T | PromiseLike<T>): Promise<T>;
  using<T>(options: Options | undefined, run: (hold: H) => T | PromiseLike<T>): Promise<T>;
  async using<T>(
    first: Options | undefined | ((hold: H) => T | PromiseLike<T>),
    second?: (hold: H) => T | PromiseLike<T>,
  ): Promise<T> {
    const [options, run] = optionsAndCallback<Options, (hold: H) => T | PromiseLike<T>>("run", first, second);
    const hold = await this.acquire(options);
    return givingBack(this.client, hold, this.name, async () => runHolding([hold], () => run(hold)));
  }

  /** Whether anybody holds it, here or elsewhere, when the store is asked. */
  async isHeld(): Promise<boolean> {
    return (await this.holders()).length > 0;
  }

  /** Who holds it, in the order of their tokens. */
  async holders(): Promise<HolderState[]> {
    return (await this.client.state(this.name))?.holders.filter(this.#shape.mine) ?? [];
  }

  /** What a call asks for. */
  protected ask(_options: Options): Ask {
    return this.#shape.ask;
  }

  /** The options that all locks share. */
  protected shared(options: Options): AcquireOptions {
    return options;
  }

  /** Throws what is wrong with the options: whoever calls it makes a promise. */
  #take(
    options = NO_OPTIONS as Options,
    waitMs: 0 | undefined,
    done: (taken: Grant | NotAcquired) => void,
    failed: (error: unknown) => void,
  ): void {
    checkObject(options);
    const { client } = this;
    const ask = this.ask(options);
    const terms =
      options === NO_OPTIONS ? defaultTerms(client, waitMs) : this.#termsOf(ask, this.shared(options), waitMs);
    client.assertOpen("acquiring", this.name);
    // Allowed while the client drains: whoever holds is to finish.
    const again = this.#shape.reentrant ? reentered(client, ask, terms) : null;
    if (again !== null) done(again);
    else this.start(ask, terms, done, failed);
  }

  protected start(
    ask: Ask,
    terms: Terms,
    done: (taken: Grant | NotAcquired) => void,
    failed: (error: unknown) => void,
  ): void {
    const { client } = this;
    const { detectDeadlockAfterMs } = terms;
    if (detectDeadlockAfterMs === undefined) startAcquiring(client, ask, terms, done, failed);
    else takeUnlessDeadlocked(client, ask, terms, detectDeadlockAfterMs).then(done, failed);
  }

  #termsOf(ask: Ask, options: AcquireOptions, waitMs: 0 | undefined): Terms {
    const terms = checkTerms(options, { ...this.client.settings, waitMs });
    if (terms.exact && ask.capacity > EXACT_CAPACITY_MAX) {
      throw new InvalidOptionError(
        "fence",
        "an exact fence lists all live tokens",
        `"exact" for capacities up to ${EXACT_CAPACITY_MAX}`,
      );
    }
    if (!this.#shape.reentrant && terms.within !== undefined) {
      throw new MisuseError(
        `"${this.name}" is a semaphore: taking it again takes more permits, so "within" has no meaning.`,
      );
    }
    return terms;
  }
}

/** Of calls without options, made once for each client: nothing in them differs from call to call. */
const DEFAULT_TERMS = new WeakMap<Client, { readonly waiting: Terms; readonly trying: Terms }>();

export function defaultTerms(client: Client, waitMs: 0 | undefined): Terms {
  let terms = DEFAULT_TERMS.get(client);
  if (terms === undefined) {
    const { settings } = client;
    const waiting = checkTerms(NO_OPTIONS, { ...settings, waitMs: undefined });
    terms = { waiting, trying: { ...waiting, waitMs: 0 } };
    DEFAULT_TERMS.set(client, terms);
  }
  return waitMs === 0 ? terms.trying : terms.waiting;
}

/** Run, and give back on every way out. */
export async function givingBack<T>(
  client: Client,
  hold: { release(): Promise<void> },
  name: string,
  run: () => Promise<T>,
): Promise<T> {
  let result: T;
  try {
    result = await run();
  } catch (error) {
    // The callback's error is the one to see; that the release failed too is told as an event.
    const message = `"${name}" was not given back cleanly after its callback failed`;
    await hold.release().catch((cause: unknown) => client.events.emit("warning", () => ({ name, message, cause })));
    throw error;
  }
  await hold.release();
  return result;
}
