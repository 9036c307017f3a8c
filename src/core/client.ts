import { hostname } from "node:os";
import { backoffMs } from "./backoff.js";
import type { Chance, Clock, Timer } from "./clock.js";
import type { CapacityAnswer, ClaimRef, Engine, EngineEvent, ReleaseAnswer, Tombstone } from "./engine.js";
import { ClosedError, EngineUnavailableError, isRefusal, MisuseError } from "./errors.js";
import { Events } from "./events.js";
import type { InspectFilter, NameState, Owner } from "./inspect.js";
import { RenewLoop } from "./renew-loop.js";

/** A claim of this client that the store may push to. */
export type PushTarget = {
  readonly claim: ClaimRef;
  pushed(event: EngineEvent): void;
  /** Time jumped ahead of the timers. */
  clockJumped(): void;
  /** The client closes: let go. Settles when the store knows, or cannot be told. */
  close(): Promise<void>;
};

/** How long to send a call again, and when to stop. */
type RetryLimits = {
  readonly until: number;
  /** Do not ask again when the outcome is unknown. */
  readonly once?: boolean;
  readonly unwanted?: () => boolean;
};

export type ClientSettings = {
  readonly leaseMs: number;
  readonly callTimeoutMs: number;
  readonly tokenBase: number;
  readonly label: string | undefined;
  readonly detectDeadlockAfterMs?: number | undefined;
};

type PendingTimer = { readonly timer: Timer; readonly fire: () => void };

export type Answered<T> = { readonly answer: T; readonly sentAt: number; readonly tries: number };

/** One program's connection to one store: what every claim and hold of it shares. */
export class Client {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly settings: ClientSettings;
  readonly owner: Owner;
  readonly events = new Events();
  readonly renewLoop: RenewLoop;
  /** Claims under way and holds, by id. */
  readonly #pushTargets = new Map<string, PushTarget>();
  readonly #releases = new Set<Promise<unknown>>();
  readonly #timers = new Set<PendingTimer>();
  readonly #unlisten: () => void;
  readonly #unwatch: () => void;
  #closing: Promise<void> | null = null;
  #closed = false;
  #stopped = false;
  /** Releases that were given up while closing. */
  #unconfirmed = 0;

  constructor(engine: Engine, clock: Clock, chance: Chance, settings: ClientSettings) {
    this.engine = engine;
    this.clock = clock;
    this.chance = chance;
    this.settings = settings;
    const { label } = settings;
    this.owner = { client: chance.id(), host: hostname(), pid: process.pid, ...(label === undefined ? {} : { label }) };
    this.renewLoop = new RenewLoop(
      (requests) => this.#withTimeout("renewing", settings.callTimeoutMs, engine.renew(requests)),
      clock,
      () => this.retryDelayMs(4),
      (cause) => this.events.emit("unavailable", () => ({ doing: "renewing", cause })),
    );
    this.#unlisten = engine.listen((event) => this.#pushed(event));
    this.#unwatch = clock.onJump?.(() => this.#clockJumped()) ?? (() => {});
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Before anything is sent: a push can overtake the answer (`pitfalls.md` 59). */
  addPushTarget(id: string, target: PushTarget): void {
    this.#pushTargets.set(id, target);
  }

  /** An id is one claim, and one claim is in one hand. */
  assertUnused(name: string, id: string): void {
    if (this.#pushTargets.has(id)) throw new MisuseError(`Claim ${id} on "${name}" is in use by these locks already.`);
  }

  removePushTarget(id: string, target: PushTarget): void {
    if (this.#pushTargets.get(id) === target) this.#pushTargets.delete(id);
  }

  #pushed(event: EngineEvent): void {
    if (event.kind === "warning") this.events.emit("warning", () => ({ message: event.message }));
    else if (event.id !== undefined) this.#pushTargets.get(event.id)?.pushed(event);
    else {
      for (const target of [...this.#pushTargets.values()]) {
        if (event.name === undefined || event.name === target.claim.name) target.pushed(event);
      }
    }
  }

  #clockJumped(): void {
    for (const target of [...this.#pushTargets.values()]) target.clockJumped();
    this.renewLoop.clockJumped();
  }

  /**
   * The only way a single call goes to the store: with its own time limit, sent again while its outcome is unknown,
   * until `until`. What comes back says when it was sent and at which try.
   */
  async callUntilAnswered<T>(
    doing: string,
    call: () => Promise<T>,
    { until, once, unwanted }: RetryLimits,
  ): Promise<Answered<T>> {
    for (let tries = 1; ; tries += 1) {
      const sentAt = this.clock.now();
      const limitMs = Math.min(this.settings.callTimeoutMs, until - sentAt);
      try {
        return { answer: await this.#withTimeout(doing, limitMs, call()), sentAt, tries };
      } catch (cause) {
        if (isRefusal(cause)) throw cause;
        this.events.emit("unavailable", () => ({ doing, cause }));
        const delayMs = this.retryDelayMs(tries);
        const enough = (): boolean => once === true || this.#stopped || unwanted?.() === true;
        const late = this.clock.now() + delayMs >= until;
        if (!late && !enough()) await this.sleep(delayMs);
        if (late || enough()) throw new EngineUnavailableError(this.engine.kind, doing, cause);
      }
    }
  }

  #withTimeout<T>(doing: string, limitMs: number, call: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = this.#startTimer(limitMs, () =>
        reject(this.#stopped ? new ClosedError(doing) : new Error(`no answer within ${Math.round(limitMs)} ms`)),
      );
      call.then(
        (answer) => {
          this.#cancelTimer(timer);
          resolve(answer);
        },
        (cause: unknown) => {
          this.#cancelTimer(timer);
          reject(cause);
        },
      );
    });
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#startTimer(ms, resolve));
  }

  /** Rings in `ms`, or when the client stops: nobody waits for ever on a closed client. */
  #startTimer(ms: number, run: () => void): PendingTimer {
    const fire = (): void => {
      this.#cancelTimer(timer);
      run();
    };
    const timer: PendingTimer = { timer: this.clock.after(ms, fire), fire };
    this.#timers.add(timer);
    return timer;
  }

  #cancelTimer(timer: PendingTimer): void {
    this.clock.cancel(timer.timer);
    this.#timers.delete(timer);
  }

  /** Grows with the tries, and is never the same for two programs that failed together. */
  retryDelayMs(tries: number): number {
    return Math.round(backoffMs(tries, this.chance));
  }

  /**
   * Give back or withdraw. `gone` and `revoked` only when the first answer says so: a release that was sent before may
   * have done it (`pitfalls.md` 66).
   */
  release(ref: ClaimRef, tombstone: Tombstone, limitMs: number): Promise<ReleaseAnswer> {
    const { name, id } = ref;
    const until = this.clock.now() + limitMs;
    const release = (): Promise<ReleaseAnswer> => this.engine.release({ name, id, tombstone });
    const released = this.callUntilAnswered(`releasing "${name}"`, release, { until }).then(({ answer, tries }) =>
      tries === 1 ? answer : "released",
    );
    this.#releases.add(released);
    released.then(
      () => this.#releases.delete(released),
      () => {
        this.#releases.delete(released);
        this.#unconfirmed += 1;
      },
    );
    return released;
  }

  /** Release in the background, for whoever cannot wait: a claim abandoned, a hold lost. */
  withdraw(ref: ClaimRef, leaseMs: number): void {
    const { name, id } = ref;
    this.release(ref, "always", leaseMs + this.settings.callTimeoutMs).then(
      () => this.events.emit("withdrawn", () => ({ name, id })),
      (cause: unknown) =>
        this.events.emit("warning", () => ({
          name,
          cause,
          message: `"${name}" could not be withdrawn; its lease ends by itself`,
        })),
    );
  }

  /** What the store knows about a name; undefined when it is idle. */
  async state(name: string): Promise<NameState | undefined> {
    const first = async (): Promise<NameState | undefined> => {
      for await (const state of this.inspect({ name })) {
        // A store that keeps a lone claim in another place than a crowd may show one that moves in both.
        const holders = [...new Map(state.holders.map((holder) => [holder.id, holder])).values()];
        return { ...state, holders };
      }
      return undefined;
    };
    return (await this.ask(`inspecting "${name}"`, first)).answer;
  }

  async *inspect(filter: InspectFilter): AsyncGenerator<NameState> {
    const { tokenBase } = this.settings;
    for await (const state of this.engine.inspect(filter)) {
      const holders = state.holders.map((holder) => ({ ...holder, token: holder.token + tokenBase }));
      yield { ...state, lastToken: state.lastToken + tokenBase, holders };
    }
  }

  async setCapacity(name: string, from: number, to: number): Promise<CapacityAnswer> {
    return (await this.ask(`resizing "${name}"`, () => this.engine.setCapacity(name, from, to))).answer;
  }

  /** One call, with as many tries as fit into the time limit of one. */
  ask<T>(doing: string, call: () => Promise<T>): Promise<Answered<T>> {
    this.assertOpen(doing);
    return this.callUntilAnswered(doing, call, { until: this.clock.now() + this.settings.callTimeoutMs });
  }

  assertOpen(doing: string): void {
    if (this.closed) throw new ClosedError(doing);
  }

  /** Lets go of everything, within the time limit of one call, and leaves no timer behind. */
  close(): Promise<void> {
    // First of all: what is told on the way may make somebody ask again.
    this.#closed = true;
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#unconfirmed = 0;
    const letGo = [...this.#pushTargets.values()].map((target) => target.close());
    const limit = this.sleep(this.settings.callTimeoutMs);
    await Promise.race([Promise.allSettled(letGo).then(() => Promise.allSettled(this.#releases)), limit]);
    const unconfirmed = this.#releases.size + this.#unconfirmed;
    if (unconfirmed > 0) {
      const message = `closed with ${unconfirmed} releases unconfirmed; their leases end by themselves`;
      this.events.emit("warning", () => ({ message }));
    }
    this.#stopped = true;
    this.renewLoop.stop();
    this.#unlisten();
    this.#unwatch();
    for (const timer of [...this.#timers]) timer.fire();
  }
}
