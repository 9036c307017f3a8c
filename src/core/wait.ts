import { Attempt, type Outcome, type Waiter } from "./attempt.js";
import { Cancellation, type LastWord, NotAcquired } from "./cancellation.js";
import type { Client } from "./client.js";
import { LockLostError } from "./errors.js";
import { Grant } from "./grant.js";
import type { Ask, Terms } from "./options.js";
import { traceAcquire } from "./trace-acquire.js";
import { wantsAcquires } from "./tracing.js";

/** Ask until granted, until told that it is not our turn (`waitMs: 0`), or until the caller leaves. */
export function acquire(client: Client, ask: Ask, terms: Terms): Promise<Grant | NotAcquired> {
  return new Promise((resolve, reject) => startAcquiring(client, ask, terms, resolve, reject));
}

/** The same for those who make the promise themselves; throws at once what is wrong with the call. Answers what is known on the way. */
export function startAcquiring(
  client: Client,
  ask: Ask,
  terms: Terms,
  resolve: (taken: Grant | NotAcquired) => void,
  reject: (error: unknown) => void,
): { readonly lastWord: LastWord } {
  if (ask.untraced !== true && wantsAcquires()) {
    return traceAcquire(client, ask, terms, resolve, reject, (done, failed) =>
      startWaiting(client, ask, terms, done, failed),
    );
  }
  return startWaiting(client, ask, terms, resolve, reject);
}

function startWaiting(
  client: Client,
  ask: Ask,
  terms: Terms,
  resolve: (taken: Grant | NotAcquired) => void,
  reject: (error: unknown) => void,
): Wait {
  client.assertTaking(`acquiring "${ask.name}"`);
  terms.signal?.throwIfAborted();
  client.limits.assertRoom(ask.name, terms.waitMs !== 0);
  if (terms.id !== undefined) client.assertUnused(ask.name, terms.id);
  const wait = new Wait(client, ask, terms, resolve, reject, client.clock.now());
  wait.start();
  return wait;
}

/** The only wait loop. Each round is a new claim with a new id: an id that ended is never used again. */
class Wait extends Cancellation implements Waiter {
  readonly #client: Client;
  readonly #ask: Ask;
  readonly #terms: Terms;
  readonly #resolve: (taken: Grant | NotAcquired) => void;
  readonly #reject: (error: unknown) => void;
  readonly #startedAt: number;
  #round = 0;
  /** What the store said last. */
  lastWord: LastWord = { holder: undefined, failure: "no answer yet" };

  constructor(
    client: Client,
    ask: Ask,
    terms: Terms,
    resolve: (taken: Grant | NotAcquired) => void,
    reject: (error: unknown) => void,
    now: number,
  ) {
    super(client, terms, now);
    this.#client = client;
    this.#ask = ask;
    this.#terms = terms;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#startedAt = now;
  }

  start(): void {
    this.#next(null, this.#startedAt);
  }

  #next(before: Attempt | null, now: number): void {
    this.#round += 1;
    const attempt = new Attempt(this.#client, this.#ask, this.#terms, this, this.#round, before);
    // Left between two rounds: nothing was asked yet.
    if (this.cancelled) return this.ended(attempt, "left", now);
    this.target = attempt;
    this.lastWord = attempt;
    attempt.start(now);
  }

  ended(attempt: Attempt, outcome: Outcome, now: number): void {
    if (outcome instanceof Grant) return this.#granted(attempt, outcome, now);
    if (outcome === "again") return this.#next(attempt, now);
    if (outcome === "busy") return this.#end(new NotAcquired(attempt, 0));
    try {
      this.#end(this.outcome(this.#ask.name, attempt, now - this.#startedAt));
    } catch (error) {
      this.failed(error);
    }
  }

  failed(error: unknown): void {
    this.dispose();
    this.#reject(error);
  }

  closed(): void {
    this.cancel("closed");
  }

  #granted(attempt: Attempt, grant: Grant, now: number): void {
    const { events } = this.#client;
    if (!events.wants("granted")) return this.#end(grant);
    const { name, id } = grant.claim;
    events.emit("granted", () => ({ name, id, token: grant.token, waitedMs: now - this.#startedAt }));
    // Whoever was told took its time: nobody works under it yet, so it is asked for again.
    const { ended } = grant;
    const ranOut = ended instanceof LockLostError && ended.reason === "deadline";
    if (ranOut && this.#terms.id === undefined && !this.#client.draining.aborted) {
      return this.#next(attempt, this.#client.clock.now());
    }
    // Or closed the client.
    if (ended instanceof LockLostError) this.failed(ended);
    else this.#end(grant);
  }

  #end(taken: Grant | NotAcquired): void {
    this.dispose();
    this.#resolve(taken);
  }
}
