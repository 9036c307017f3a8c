import type { Clock, Timer } from "../core/clock.js";
import type { ClaimRef, EngineEvent } from "../core/engine.js";

/** The local side of a claim: what this process knows of an entry that it put into a queue, or may have. */
export class LocalClaim {
  readonly name: string;
  readonly id: string;
  /** Of its entry; empty while there is none. */
  readonly key: string = "";
  /** A grant of it lists all live tokens. */
  exact = false;
  /** 0 while the store has not said that its entry is there. */
  token = 0;
  granted = false;
  /** Its entry was put there by this engine, and not by another from which this one took it over. */
  made = false;
  /** The claim of this engine that it was told to stand behind. */
  ahead: string | undefined;
  /** That one let go, and this one went on: nobody has to be told. */
  followed = false;
  /** What it waits for is a claim of this engine: no watch in the store is needed. */
  waitsForOwn = false;
  /** Others may hold beside it, and are told when it is granted. */
  permit = false;
  /** Released, lost or ended: no answer that is still under way counts for it. */
  over = false;
  /** Its time was over, and this engine removed its entry. */
  removed = false;
  /** Without another heartbeat it is removed then, although the session or the lease that it shares may live on. */
  endsAt: number;
  /** Its entry is to be watched after a while. */
  watchSoon: { readonly timer: Timer; readonly start: () => void } | null = null;
  /** Somebody of this engine counts on being told what becomes of it: its entry is watched at once. */
  counted = false;

  constructor({ name, id }: ClaimRef, endsAt: number) {
    this.name = name;
    this.id = id;
    this.endsAt = endsAt;
  }
}

const TRY_AGAIN_MS = 1_000;

/** Most claims are over before it is worth the messages to watch their entries. */
const WATCH_AFTER_MS = 200;

/**
 * All claims of one engine, by name and id, from the first request to the release. A claim that is over stays here until the
 * store has confirmed that its entry is gone.
 */
export abstract class LocalClaims<Claim extends LocalClaim> {
  protected readonly clock: Clock;
  readonly #tell: (event: EngineEvent) => void;
  readonly #names = new Map<string, Map<string, Claim>>();
  readonly #removing = new Set<Claim>();
  #timer: Timer | null = null;
  #timerAt = Infinity;
  #closed = false;
  /** Told of each whose entry is gone. */
  left: (claim: Claim) => void = () => {};
  /** Told of each whose entry somebody changed. */
  changed: (claim: Claim) => void = () => {};
  /** Told of each whose entry is not watched any more. */
  unheard: (claim: Claim) => void = () => {};

  constructor(clock: Clock, tell: (event: EngineEvent) => void) {
    this.clock = clock;
    this.#tell = tell;
  }

  /** Removes the entry of a claim whose time is over; false when it was not there. When it rejects, it is called again after a pause. */
  protected abstract remove(claim: Claim): Promise<boolean>;

  /** Whether its entry is watched, or is about to be. */
  protected abstract isHeard(claim: Claim): boolean;

  /** Ends all watches of a claim. */
  protected abstract unwatch(claim: Claim): void;

  get({ name, id }: ClaimRef): Claim | undefined {
    return this.#names.get(name)?.get(id);
  }

  /** Whose entry this is, if it is one of this engine's. */
  ownOf(name: string, { id, key }: { readonly id: string | null; readonly key: string }): Claim | undefined {
    const own = id === null ? undefined : this.get({ name, id });
    return own?.key === key ? own : undefined;
  }

  ofName(name: string): Iterable<Claim> {
    return this.#names.get(name)?.values() ?? [];
  }

  countOf(name: string): number {
    return this.#names.get(name)?.size ?? 0;
  }

  get all(): Claim[] {
    return [...this.#names.values()].flatMap((named) => [...named.values()]);
  }

  add(claim: Claim): Claim {
    const named = this.#names.get(claim.name) ?? new Map<string, Claim>();
    this.#names.set(claim.name, named.set(claim.id, claim));
    this.#checkAt(claim.endsAt);
    return claim;
  }

  hasEnded({ endsAt }: Claim): boolean {
    return endsAt <= this.clock.now();
  }

  endAt(claim: Claim, at: number): void {
    claim.endsAt = at;
    this.#checkAt(at);
  }

  /** Its entry is there: after a while it is watched, or at once where somebody counts on it. */
  watchLater(claim: Claim, watch: () => void): void {
    if (claim.over || claim.watchSoon !== null || this.#closed) return;
    if (claim.counted) return watch();
    const start = (): void => {
      claim.watchSoon = null;
      watch();
    };
    claim.watchSoon = { timer: this.clock.after(WATCH_AFTER_MS, start), start };
  }

  /**
   * What becomes of its entry has to be known here: also when another client removes it right after it came. False where that
   * would not be told.
   */
  countOn(claim: Claim): boolean {
    claim.counted = true;
    if (claim.watchSoon !== null) {
      this.clock.cancel(claim.watchSoon.timer);
      claim.watchSoon.start();
    }
    // What is over is removed here.
    return claim.over || this.isHeard(claim);
  }

  /** For now: an entry that is there after all is watched again. */
  stopWatching(claim: Claim): void {
    if (claim.watchSoon !== null) this.clock.cancel(claim.watchSoon.timer);
    claim.watchSoon = null;
    this.unwatch(claim);
  }

  /** It is over for whoever made it; until the store has confirmed that, it stays noted. */
  finish(claim: Claim): void {
    claim.over = true;
    this.stopWatching(claim);
  }

  /** Not ours to look after any more: its entry is gone, or was never there. */
  forget(claim: Claim): void {
    this.finish(claim);
    const named = this.#names.get(claim.name);
    if (named?.get(claim.id) !== claim) return;
    named.delete(claim.id);
    if (named.size === 0) this.#names.delete(claim.name);
    this.left(claim);
  }

  /** Its entry is gone, and not because of us. */
  lose(claim: Claim): void {
    if (claim.over) return;
    const { name, id } = claim;
    this.forget(claim);
    this.#tell({ kind: "lost", name, id });
  }

  loseAll(): void {
    for (const claim of this.all) this.lose(claim);
  }

  /** No heartbeat came, or nobody will release it: its entry is removed as soon as the store can be told. */
  expire(claim: Claim): void {
    this.finish(claim);
    claim.endsAt = this.clock.now();
    void this.#check();
  }

  /** Forgets all of them, and says which they were. */
  close(): readonly Claim[] {
    this.#closed = true;
    if (this.#timer !== null) this.clock.cancel(this.#timer);
    const { all } = this;
    for (const claim of all) this.finish(claim);
    this.#names.clear();
    return all;
  }

  /** Heartbeats move an end and leave the timer alone: the ends are compared again when it fires. */
  #checkAt(at: number): void {
    if (this.#closed || at >= this.#timerAt) return;
    if (this.#timer !== null) this.clock.cancel(this.#timer);
    this.#timerAt = at;
    this.#timer = this.clock.after(Math.max(0, at - this.clock.now()), () => {
      this.#timer = null;
      void this.#check();
    });
  }

  async #check(): Promise<void> {
    const now = this.clock.now();
    const due = this.all.filter((claim) => claim.endsAt <= now && !this.#removing.has(claim));
    for (const claim of due) this.finish(claim);
    const [first, ...others] = due;
    // Where nobody answers, the others are as due later as now.
    if (first !== undefined && (await this.#end(first))) await Promise.all(others.map((claim) => this.#end(claim)));
    if (this.#timer === null) this.#timerAt = Infinity;
    for (const { endsAt } of this.all) this.#checkAt(endsAt > now ? endsAt : this.clock.now() + TRY_AGAIN_MS);
  }

  async #end(claim: Claim): Promise<boolean> {
    this.#removing.add(claim);
    try {
      claim.removed = await this.remove(claim);
      this.forget(claim);
      return true;
    } catch {
      return false;
    } finally {
      this.#removing.delete(claim);
    }
  }
}
