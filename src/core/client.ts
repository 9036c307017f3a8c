import { hostname } from "node:os";
import { backoffMs } from "./backoff.js";
import { type Answered, AwaitedCall, type Caller, type RetryLimits } from "./call.js";
import { ClaimLimits } from "./claim-limits.js";
import type { Chance, Clock } from "./clock.js";
import { Deadlines, Moment } from "./deadlines.js";
import type {
  CapacityAnswer,
  ClaimRef,
  Engine,
  EngineEvent,
  ReleaseAnswer,
  ReleaseRequest,
  Tombstone,
} from "./engine.js";
import { ClosedError, DrainingError, type HoldfastError, MisuseError } from "./errors.js";
import { Events, type LockEvents } from "./events.js";
import { FinishSignals } from "./finish-signals.js";
import type { InspectFilter, NameState, Owner } from "./inspect.js";
import { type Relay, type Releaser, Successors } from "./local-hand-over.js";
import { Register } from "./register.js";
import { ReleaseCall } from "./release-call.js";
import { type Renewals, RenewLoop } from "./renew-loop.js";
import { traceRenew, wantsRenewals } from "./tracing.js";

/** A claim of this client that the store may push to. */
export type PushTarget = {
  readonly claim: ClaimRef;
  /** It is a claim that was not granted yet, and not told not to wait. */
  readonly waits?: boolean;
  pushed(event: EngineEvent): void;
  /** Time jumped ahead of the timers. */
  clockJumped(): void;
  /** The client closes: let go. Settles when the store knows, or cannot be told. While it drains, a hold goes on. */
  close(draining?: boolean): Promise<void>;
};

export type ClientSettings = {
  readonly leaseMs: number;
  readonly callTimeoutMs: number;
  readonly tokenBase: number;
  readonly label: string | undefined;
  readonly maxWaiters: number;
  readonly maxClaims: number;
  readonly detectDeadlockAfterMs?: number | undefined;
};

/** One program's connection to one store: what every claim and hold of it shares. */
export class Client implements Caller {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly settings: ClientSettings;
  readonly owner: Owner;
  readonly events = new Events();
  readonly deadlines: Deadlines;
  readonly renewLoop: RenewLoop;
  /** The same one, unless another thread renews what is held. */
  readonly holdLoop: Renewals;
  readonly successors = new Successors();
  readonly finishSignals = new FinishSignals();
  readonly limits = new ClaimLimits(this);
  /** Claims under way and holds, by id. */
  readonly #pushTargets = new Register<PushTarget>();
  /** How many are under way. */
  #releases = 0;
  /** Drawn once: with a number behind it, it is as good as drawn for each claim, and costs a quarter. */
  readonly #idPrefix: string;
  /** From here on all have six digits, so that ids are equally long. */
  #lastId = 36 ** 5;
  readonly #unlisten: () => void;
  readonly #unwatch: () => void;
  #closing: Promise<void> | null = null;
  #closed = false;
  /** It drains or is closed. */
  #leaving = false;
  #stopped = false;
  /** Draining waits for the last of the holds. */
  #lastLeft: () => void = () => {};
  /** Closing waits for the last of the releases. */
  #lastReleased: () => void = () => {};
  /** Releases that were given up while closing. */
  #unconfirmed = 0;

  constructor(
    engine: Engine,
    clock: Clock,
    chance: Chance,
    settings: ClientSettings,
    holdLoop: (client: Client) => Renewals = ({ renewLoop }) => renewLoop,
  ) {
    this.engine = engine;
    this.clock = clock;
    this.chance = chance;
    this.settings = settings;
    this.deadlines = new Deadlines(clock);
    this.#idPrefix = chance.id();
    const { label } = settings;
    this.owner = { client: chance.id(), host: hostname(), pid: process.pid, ...(label === undefined ? {} : { label }) };
    this.renewLoop = new RenewLoop({
      renew: (requests) => {
        if (!wantsRenewals()) return engine.renew(requests);
        return traceRenew(this, requests.length, () => engine.renew(requests));
      },
      clock,
      deadlines: this.deadlines,
      limitMs: settings.callTimeoutMs,
      retryDelayMs: () => this.retryDelayMs(4),
      unavailable: (cause) =>
        this.events.emit("unavailable", () => ({ doing: "renewing", engine: engine.kind, cause })),
    });
    this.holdLoop = holdLoop(this);
    this.successors.isOff = this.holdLoop !== this.renewLoop;
    this.#unlisten = engine.listen((event) => this.#pushed(event));
    this.#unwatch = clock.onJump?.(() => this.#clockJumped()) ?? (() => {});
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Aborted when it begins to drain, or to close. */
  get draining(): AbortSignal {
    return this.finishSignals.all;
  }

  get stopped(): boolean {
    return this.#stopped;
  }

  get claims(): number {
    return this.#pushTargets.size;
  }

  *waitingNames(): Generator<string> {
    for (const target of this.#pushTargets.values()) if (target.waits) yield target.claim.name;
  }

  /** A claim's identity: unique for ever, and nobody else's guess. */
  newId(): string {
    this.#lastId += 1;
    return this.#idPrefix + this.#lastId.toString(36);
  }

  /** Before anything is sent: a push can overtake the answer (`pitfalls.md` 59). */
  addPushTarget(id: string, target: PushTarget): void {
    this.#pushTargets.add(id, target);
  }

  /** The claim goes on in another hand. */
  replacePushTarget(id: string, target: PushTarget): void {
    this.#pushTargets.set(id, target);
  }

  /** An id is one claim, and one claim is in one hand. */
  assertUnused(name: string, id: string): void {
    if (this.#pushTargets.has(id)) throw new MisuseError(`Claim ${id} on "${name}" is in use by these locks already.`);
  }

  removePushTarget(id: string, target: PushTarget): void {
    this.#pushTargets.delete(id, target);
    if (this.#leaving && this.#pushTargets.size === 0) this.#lastLeft();
  }

  #pushed(event: EngineEvent): void {
    if (event.kind === "warning") this.events.emit("warning", () => ({ message: event.message }));
    else if (event.kind === "bare-majority") this.events.emit("bareMajority", () => standingOf(event));
    else if (event.id !== undefined) this.#pushTargets.get(event.id)?.pushed(event);
    else {
      for (const target of this.#pushTargets.values()) {
        if (event.name === undefined || event.name === target.claim.name) target.pushed(event);
      }
    }
  }

  #clockJumped(): void {
    for (const target of this.#pushTargets.values()) target.clockJumped();
    this.deadlines.look();
  }

  /** A call that is awaited: with its own time limit, sent again while its outcome is unknown, until `until`. */
  callUntilAnswered<T>(doing: string, call: () => Promise<T>, limits: RetryLimits): Promise<Answered<T>> {
    return new Promise((resolve, reject) => {
      new AwaitedCall(this, doing, call, limits, resolve, reject).start(this.clock.now());
    });
  }

  /** Ends early when the client stops: nobody waits for ever on a closed client. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const now = this.clock.now();
      this.deadlines.set(new Moment(), { due: () => resolve(), stopped: resolve }, now + ms, now);
    });
  }

  /** Grows with the tries, and is never the same for two programs that failed together. */
  retryDelayMs(tries: number): number {
    return Math.round(backoffMs(tries, this.chance));
  }

  /** Give back or withdraw. */
  release({ name, id }: ClaimRef, tombstone: Tombstone, limitMs: number): Promise<ReleaseAnswer> {
    return new Promise((resolve, reject) => {
      const by = { released: resolve, notReleased: reject };
      this.startReleasing({ name, id, tombstone }, limitMs, this.clock.now(), by, null);
    });
  }

  /** The same for those who make the promise themselves. */
  startReleasing(request: ReleaseRequest, limitMs: number, now: number, by: Releaser, relay: Relay | null): void {
    this.#releases += 1;
    new ReleaseCall(this, request, now + limitMs, by, relay).start(now);
  }

  /** @internal */
  releaseEnded(confirmed: boolean): void {
    this.#releases -= 1;
    if (!confirmed) this.#unconfirmed += 1;
    if (this.#releases === 0) this.#lastReleased();
  }

  /** Release in the background, for whoever cannot wait: a claim abandoned, a hold lost. */
  withdraw(ref: ClaimRef, leaseMs: number, tombstone: Tombstone = "always"): void {
    const { name, id } = ref;
    this.release(ref, tombstone, leaseMs + this.settings.callTimeoutMs).then(
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

  async *inspect(filter: InspectFilter, limit = Infinity): AsyncGenerator<NameState> {
    const { tokenBase } = this.settings;
    let listed = 0;
    for await (const state of this.engine.inspect(filter)) {
      const holders = state.holders.map((holder) => ({ ...holder, token: holder.token + tokenBase }));
      yield { ...state, lastToken: state.lastToken + tokenBase, holders };
      if ((listed += 1) >= limit) return;
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

  assertOpen(doing: string, name?: string): void {
    if (this.#closed) throw new ClosedError(name === undefined ? doing : `${doing} "${name}"`);
  }

  /** Before anything new is taken or waited for. */
  assertTaking(doing: string): void {
    if (this.#leaving) throw this.leavingError(doing);
  }

  leavingError(doing: string): HoldfastError {
    return this.#closed ? new ClosedError(doing) : new DrainingError(doing);
  }

  /** Takes nothing new and waits for nothing any more; resolves when the last hold has ended, or the time is over. */
  async drain(graceMs: number): Promise<void> {
    if (this.#leaving) return;
    const startedAt = this.clock.now();
    // Who waits leaves before any holder releases: nobody is let in meanwhile.
    void Promise.all(this.#leave(true));
    this.events.emit("draining", () => ({ graceMs }));
    const grace = this.#pushTargets.size > 0 ? this.sleep(graceMs) : undefined;
    // Looked at again: a claim that goes on as another grant is gone for a moment.
    while (this.#pushTargets.size > 0 && this.clock.now() < startedAt + graceMs && !this.#closed) {
      const allLeft = new Promise<void>((resolve) => (this.#lastLeft = resolve));
      await Promise.race([allLeft, grace]);
    }
    if (this.#closed) return;
    const left = this.#pushTargets.size;
    this.events.emit("drained", () => ({ left, tookMs: this.clock.now() - startedAt }));
  }

  #leave(draining: boolean): Promise<void>[] {
    this.#leaving = true;
    const targets = this.#pushTargets.values();
    const leaving = targets.map((target) => target.close(draining));
    this.finishSignals.abort(targets, this.leavingError("working"));
    return leaving;
  }

  /** Lets go of everything, within the time limit of one call, and leaves no timer behind. */
  close(): Promise<void> {
    // First of all: what is told on the way may make somebody ask again.
    this.#closed = true;
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#unconfirmed = 0;
    const letGo = this.#leave(false);
    const limit = this.sleep(this.settings.callTimeoutMs);
    await Promise.race([Promise.allSettled(letGo).then(() => this.#allReleased()), limit]);
    const unconfirmed = this.#releases + this.#unconfirmed;
    if (unconfirmed > 0) {
      const message = `closed with ${unconfirmed} releases unconfirmed; their leases end by themselves`;
      this.events.emit("warning", () => ({ message }));
    }
    this.#stopped = true;
    this.renewLoop.stop();
    this.holdLoop.stop();
    this.#unlisten();
    this.#unwatch();
    this.deadlines.stop();
  }

  #allReleased(): Promise<void> | undefined {
    if (this.#releases === 0) return undefined;
    return new Promise((resolve) => (this.#lastReleased = resolve));
  }
}

function standingOf(event: Extract<EngineEvent, { kind: "bare-majority" }>): LockEvents["bareMajority"] {
  const { name, id, votes, members, forMs, over } = event;
  return { name, id, votes, members, forMs, over };
}
