import { hostname } from "node:os";
import type { Chance, Clock, Timer } from "./clock.js";
import type { CapacityAnswer, ClaimRef, Engine, EngineEvent, Released } from "./engine.js";
import { ClosedError, EngineUnavailableError, isRefusal, MisuseError } from "./errors.js";
import { Events } from "./events.js";
import type { InspectFilter, NameState, Owner } from "./inspect.js";
import { RETRY_MAX_MS, RETRY_MIN_MS } from "./limits.js";
import { Renewal } from "./renewal.js";

/** A claim of this client that the store may push to. */
export type Listening = {
  readonly claim: ClaimRef;
  pushed(event: EngineEvent): void;
  /** Time jumped ahead of the timers. */
  look(): void;
  /** The client closes: let go. Settles when the store knows, or cannot be told. */
  close(): Promise<void>;
};

/** How long to insist, and when to stop. */
type Insist = {
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

type Alarm = { readonly timer: Timer; readonly ring: () => void };

export type Answered<T> = { readonly answer: T; readonly sentAt: number; readonly tries: number };

/** One program's connection to one store: what every claim and hold of it shares. */
export class Client {
  readonly engine: Engine;
  readonly clock: Clock;
  readonly chance: Chance;
  readonly settings: ClientSettings;
  readonly owner: Owner;
  readonly events = new Events();
  readonly renewal: Renewal;
  /** Claims under way and holds, by id. */
  readonly #listening = new Map<string, Listening>();
  readonly #leaving = new Set<Promise<unknown>>();
  readonly #alarms = new Set<Alarm>();
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
    this.renewal = new Renewal(
      (signs) => this.#within("renewing", settings.callTimeoutMs, engine.renew(signs)),
      clock,
      () => this.retryDelayMs(4),
      (cause) => this.events.emit("unavailable", () => ({ doing: "renewing", cause })),
    );
    this.#unlisten = engine.listen((event) => this.#pushed(event));
    this.#unwatch = clock.onJump?.(() => this.#look()) ?? (() => {});
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Before anything is sent: a push can overtake the answer (`pitfalls.md` 59). */
  expect(id: string, listening: Listening): void {
    this.#listening.set(id, listening);
  }

  /** An id is one claim, and one claim is in one hand. */
  assertUnused(name: string, id: string): void {
    if (this.#listening.has(id)) throw new MisuseError(`Claim ${id} on "${name}" is in use by these locks already.`);
  }

  forget(id: string, listening: Listening): void {
    if (this.#listening.get(id) === listening) this.#listening.delete(id);
  }

  #pushed(event: EngineEvent): void {
    if (event.kind === "warning") this.events.emit("warning", () => ({ message: event.message }));
    else if (event.id !== undefined) this.#listening.get(event.id)?.pushed(event);
    else {
      for (const listening of [...this.#listening.values()]) {
        if (event.name === undefined || event.name === listening.claim.name) listening.pushed(event);
      }
    }
  }

  #look(): void {
    for (const listening of [...this.#listening.values()]) listening.look();
    this.renewal.look();
  }

  /**
   * The only way a single call goes to the store: with its own time limit, sent again while its outcome is unknown,
   * until `until`. What comes back says when it was sent and at which try.
   */
  async insist<T>(doing: string, call: () => Promise<T>, { until, once, unwanted }: Insist): Promise<Answered<T>> {
    for (let tries = 1; ; tries += 1) {
      const sentAt = this.clock.now();
      const limitMs = Math.min(this.settings.callTimeoutMs, until - sentAt);
      try {
        return { answer: await this.#within(doing, limitMs, call()), sentAt, tries };
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

  #within<T>(doing: string, limitMs: number, call: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const alarm = this.#alarm(limitMs, () =>
        reject(this.#stopped ? new ClosedError(doing) : new Error(`no answer within ${Math.round(limitMs)} ms`)),
      );
      call.then(
        (answer) => {
          this.#silence(alarm);
          resolve(answer);
        },
        (cause: unknown) => {
          this.#silence(alarm);
          reject(cause);
        },
      );
    });
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.#alarm(ms, resolve));
  }

  /** Rings in `ms`, or when the client stops: nobody waits for ever on a closed client. */
  #alarm(ms: number, run: () => void): Alarm {
    const ring = (): void => {
      this.#silence(alarm);
      run();
    };
    const alarm: Alarm = { timer: this.clock.after(ms, ring), ring };
    this.#alarms.add(alarm);
    return alarm;
  }

  #silence(alarm: Alarm): void {
    this.clock.cancel(alarm.timer);
    this.#alarms.delete(alarm);
  }

  /** Grows with the tries, and is never the same for two programs that failed together. */
  retryDelayMs(tries: number): number {
    const mostMs = Math.min(RETRY_MAX_MS, RETRY_MIN_MS * 2 ** Math.min(tries, 10));
    return Math.round(mostMs * (0.5 + this.chance.fraction() / 2));
  }

  /**
   * Give back or withdraw. `gone` and `revoked` only when the first answer says so: a release that was sent before may
   * have done it (`pitfalls.md` 66).
   */
  leave(ref: ClaimRef, settled: boolean, limitMs: number): Promise<Released> {
    const { name, id } = ref;
    const until = this.clock.now() + limitMs;
    const release = (): Promise<Released> => this.engine.release({ name, id, settled });
    const left = this.insist(`releasing "${name}"`, release, { until }).then(({ answer, tries }) =>
      tries === 1 ? answer : "released",
    );
    this.#leaving.add(left);
    left.then(
      () => this.#leaving.delete(left),
      () => {
        this.#leaving.delete(left);
        this.#unconfirmed += 1;
      },
    );
    return left;
  }

  /** Leave in the background, for whoever cannot wait: a claim abandoned, a hold lost. */
  withdraw(ref: ClaimRef, settled: boolean, leaseMs: number): void {
    const { name, id } = ref;
    this.leave(ref, settled, leaseMs + this.settings.callTimeoutMs).then(
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
    return this.insist(doing, call, { until: this.clock.now() + this.settings.callTimeoutMs });
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
    const letGo = [...this.#listening.values()].map((listening) => listening.close());
    const limit = this.sleep(this.settings.callTimeoutMs);
    await Promise.race([Promise.allSettled(letGo).then(() => Promise.allSettled(this.#leaving)), limit]);
    const unconfirmed = this.#leaving.size + this.#unconfirmed;
    if (unconfirmed > 0) {
      const message = `closed with ${unconfirmed} releases unconfirmed; their leases end by themselves`;
      this.events.emit("warning", () => ({ message }));
    }
    this.#stopped = true;
    this.renewal.stop();
    this.#unlisten();
    this.#unwatch();
    for (const alarm of [...this.#alarms]) alarm.ring();
  }
}
