import type { Grant } from "./grant.js";
import type { HandOver } from "./hand-over.js";
import type { HoldState } from "./hold-state.js";

/** A lock in the hand: it ends itself, and can tell that it is gone. */
export class Hold implements AsyncDisposable {
  readonly #grant: Grant;
  #released: Promise<void> | null = null;

  /** @internal */
  constructor(grant: Grant) {
    this.#grant = grant;
    grant.addHold();
  }

  /** The grant behind a hold, or undefined for what is no hold of this copy of the package. @internal */
  static grantOf(hold: unknown): Grant | undefined {
    return typeof hold === "object" && hold !== null && #grant in hold ? hold.#grant : undefined;
  }

  get name(): string {
    return this.#grant.claim.name;
  }

  /** The claim's identity in the store. */
  get id(): string {
    return this.#grant.claim.id;
  }

  /** The fencing number: larger for every later grant of this name. Hand it to the resource with each write. */
  get token(): number {
    return this.#grant.token;
  }

  /** The lowest token that was live when the store last answered: what a resource may refuse everything below. */
  get floor(): number {
    return this.#grant.fence.floor + this.#grant.client.settings.tokenBase;
  }

  /** All tokens live then, for a hold taken with `fence: "exact"`. */
  get live(): readonly number[] | undefined {
    return this.#grant.fence.live?.map((token) => token + this.#grant.client.settings.tokenBase);
  }

  /** Aborted with a `LockLostError` when the lock is lost. */
  get signal(): AbortSignal {
    return this.#grant.signal;
  }

  /** Aborted with a `DrainingError` when `locks.drain()` asks to finish: the lock is still held. */
  get draining(): AbortSignal {
    return this.#grant.client.finishSignals.of(this.#grant);
  }

  get state(): HoldState {
    return this.#released !== null && this.#grant.state !== "lost" ? "released" : this.#grant.state;
  }

  /** How long it is safe to go on without another confirmed renewal. */
  get remainingMs(): number {
    return this.#released === null ? this.#grant.remainingMs : 0;
  }

  /** Throws when this is not held any more. Compares clocks, so it is right even after a stalled event loop. */
  throwIfLost(): void {
    if (this.#released !== null) throw this.#grant.notHeld();
    this.#grant.throwIfLost();
  }

  /**
   * Give the lock back. Calling it again gives the same answer. Rejects with `LockLostError` when the lock had been lost:
   * what was done under it may have been unprotected.
   */
  release(): Promise<void> {
    return (this.#released ??= this.#grant.removeHold());
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release();
  }

  /** What the console shows. */
  [Symbol.for("nodejs.util.inspect.custom")](): object {
    const { name, id, token, state, remainingMs } = this;
    return { name, id, token, state, remainingMs };
  }

  /** For a fixed lease (`renew: false`): it ends `ms` from now, or later if it was to end later. */
  async extend(ms: number): Promise<void> {
    this.throwIfLost();
    await this.#grant.extend(ms);
  }

  /** Let another process go on with this hold: pass the data on and call `locks.adopt(data)` there, before the lease ends. */
  handOver(): HandOver {
    this.throwIfLost();
    const data = this.#grant.handOver();
    this.#released = Promise.resolve();
    return data;
  }
}

/** The write side of a read-write lock. */
export class WriteHold extends Hold {
  /** Become a reader without letting go; waiting readers come in. Await your writes first. */
  async downgrade(): Promise<void> {
    this.throwIfLost();
    await Hold.grantOf(this)?.shrink(1);
  }
}
