import { checkCount, checkFunction, checkKnown, shown } from "../core/checks.js";
import { InvalidOptionError, MisuseError } from "../core/errors.js";
import type { Hold } from "../core/hold.js";
import { LEASE_DEFAULT_MS } from "../core/limits.js";
import { checkName } from "../core/name.js";
import { type AcquireOptions, checkTerms } from "../core/options.js";
import type { Locks } from "../locks.js";
import { type Answer, badName, checkRetryAfter, isAnswer, problem, tooMany, unavailable } from "./answer.js";
import type { RequestEnd } from "./request-end.js";

/** How a request takes a lock, and what is answered when it cannot. */
export interface TakeOptions extends Pick<AcquireOptions, "leaseMs" | "maxHoldMs" | "label"> {
  /** How long a request waits for the lock; 5 s unless said otherwise, 0: not at all. */
  readonly waitMs?: number;
  /** How many requests may wait at a time, in this process; 1,000 unless said otherwise. The next is answered with 503. */
  readonly maxWaiting?: number;
  /** What is answered when the lock is busy: 409 unless said otherwise. */
  readonly busyStatus?: 409 | 423;
  /** What `Retry-After` says to whom was refused; 1 unless said otherwise. */
  readonly retryAfterSeconds?: number;
}

export interface LockRequestOptions<Request> extends TakeOptions {
  /**
   * The lock's name. A name that no lock can have, and a `URIError` (`decodeURIComponent` of a malformed path), are answered
   * with 400; any other error is thrown.
   */
  readonly name: string | ((request: Request) => string | Promise<string>);
  /** What is taken by that name: a mutex, unless this says otherwise, such as `(name) => locks.semaphore(name, 3)`. */
  readonly recipe?: (name: string) => { tryAcquire(options: AcquireOptions): Promise<Hold | null> };
}

export const TAKE = [
  "waitMs",
  "leaseMs",
  "maxHoldMs",
  "label",
  "maxWaiting",
  "busyStatus",
  "retryAfterSeconds",
] as const;

/** The hold of a request, while the request is handled. */
export class RequestHold {
  readonly hold: Hold;
  readonly #abort: AbortController;
  /** What has to be over before the lock is given back: the request, and what `waitUntil` was given. */
  #pending = 1;

  /** @internal */
  constructor(hold: Hold, abort: AbortController) {
    this.hold = hold;
    this.#abort = abort;
    hold.signal.addEventListener("abort", () => abort.abort(hold.signal.reason));
  }

  get name(): string {
    return this.hold.name;
  }

  /** The fencing number: larger than that of any earlier request under this lock. */
  get token(): number {
    return this.hold.token;
  }

  /** Aborted when the lock is lost; under `withLock` also when the client goes away before it was answered. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Keep the lock until this has settled, also when the client goes away or was answered before. */
  waitUntil(work: PromiseLike<unknown>): void {
    this.hold.throwIfLost();
    this.#pending += 1;
    const over = (): void => this.over();
    // Whatever it is, it must come to an end: nobody else would give the lock back.
    Promise.resolve(work).then(over, over);
  }

  /** The request is over, or one that was waited for. @internal */
  over(): void {
    this.#pending -= 1;
    // A hold that was lost, and a store that does not answer, are told by events and by the signal; nobody is left to be told here.
    if (this.#pending === 0) this.hold.release().catch(() => {});
  }
}

const holds = new WeakMap<object, RequestHold>();
const refused = new WeakSet<object>();

/** Whether it was answered in place of its handler, for want of a lock: nothing was done. */
export const wasRefused = (request: object): boolean => refused.has(request);

/** The hold of this request (of Hono: its context), for a handler behind `withLock` or `withIdempotencyKey`; the inner one of several. */
export function heldBy(request: object): RequestHold {
  const held = holds.get(request);
  if (held !== undefined) return held;
  throw new MisuseError(
    "This request holds no lock: its handler does not stand behind withLock or withIdempotencyKey.",
  );
}

/** Takes locks for the requests of one middleware. */
export class RequestLock<Request extends object> {
  readonly #name: LockRequestOptions<Request>["name"];
  readonly #busyStatus: 409 | 423;
  readonly #lock: NonNullable<LockRequestOptions<Request>["recipe"]>;
  readonly #acquire: AcquireOptions;
  readonly #maxWaiting: number;
  readonly retryAfterSeconds: number;
  /** Holds do not end with the connection of their request: `over` is called for them. */
  readonly #lasting: boolean;
  #waiting = 0;

  constructor(locks: Locks, options: LockRequestOptions<Request>, lasting = false) {
    checkKnown(options, ["name", "recipe", ...TAKE]);
    const { name, recipe, waitMs = 5_000, leaseMs, maxHoldMs, label, busyStatus = 409 } = options;
    if (typeof name === "string") checkName(name);
    else checkFunction("name", name);
    if (recipe !== undefined) checkFunction("recipe", recipe);
    if (busyStatus !== 409 && busyStatus !== 423) {
      throw new InvalidOptionError("busyStatus", shown(busyStatus), "409 or 423");
    }
    this.#name = name;
    this.#busyStatus = busyStatus;
    this.#lasting = lasting;
    this.#lock = recipe ?? ((one) => locks.mutex(one));
    this.#acquire = defined({ waitMs, leaseMs, maxHoldMs, label });
    checkTerms(this.#acquire, { leaseMs: LEASE_DEFAULT_MS, waitMs });
    this.#maxWaiting = checkCount("maxWaiting", options.maxWaiting ?? 1_000, 1, 1_000_000);
    this.retryAfterSeconds = checkRetryAfter(options.retryAfterSeconds ?? 1);
  }

  /** The hold; or what to answer instead; null when nobody is there to be answered. `heldBy` finds it by `key`. */
  async take(request: Request, end: RequestEnd, key: object = request): Promise<RequestHold | Answer | null> {
    const taken = await this.#take(request, end, key);
    if (taken !== null && isAnswer(taken)) refused.add(key);
    return taken;
  }

  async #take(request: Request, end: RequestEnd, key: object): Promise<RequestHold | Answer | null> {
    const { retryAfterSeconds } = this;
    if (this.#waiting >= this.#maxWaiting) return tooMany(retryAfterSeconds);
    const abort = new AbortController();
    let waits = true;
    end.on((answered) => {
      if (!answered && (waits || !this.#lasting)) abort.abort(new Error("The client has gone away."));
    });
    this.#waiting += 1;
    try {
      const name = this.#name;
      const lock = this.#lock(checkName(typeof name === "string" ? name : await name(request)));
      const hold = await lock.tryAcquire({ ...this.#acquire, signal: abort.signal });
      if (hold === null) {
        return problem("busy", this.#busyStatus, "Another request holds the lock. Ask later.", retryAfterSeconds);
      }
      waits = false;
      const held = new RequestHold(hold, abort);
      if (!this.#lasting) end.on(() => held.over());
      // It may have been granted in the same moment in which the client left.
      if (end.isOver) {
        if (this.#lasting) held.over();
        return null;
      }
      holds.set(key, held);
      return held;
    } catch (error) {
      if (end.isOver) return null;
      const answer = badName(error) ?? unavailable(error, retryAfterSeconds);
      if (answer === undefined) throw error;
      return answer;
    } finally {
      this.#waiting -= 1;
    }
  }
}

/** What is left out is not given as undefined. */
function defined(options: { readonly [Key in keyof AcquireOptions]: AcquireOptions[Key] | undefined }): AcquireOptions {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
}
