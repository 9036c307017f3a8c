import type { Clock, Timer } from "../core/clock.js";
import type { ClaimRef } from "../core/engine.js";

/** The local side of a claim: what this process knows of an entry that it put into a queue, or may have. */
export class LocalClaim {
  readonly name: string;
  readonly id: string;
  granted = false;
  /** Released, lost or ended: no answer that is still under way counts for it. */
  over = false;
  /** Without another heartbeat it is removed then, although the session or the lease that it shares may live on. */
  endsAt: number;

  constructor({ name, id }: ClaimRef, endsAt: number) {
    this.name = name;
    this.id = id;
    this.endsAt = endsAt;
  }
}

const TRY_AGAIN_MS = 1_000;

/** All claims of one engine, by name and id, and the end of those for which no heartbeat came. */
export class LocalClaims<Claim extends LocalClaim> {
  readonly #clock: Clock;
  readonly #end: (due: readonly Claim[]) => Promise<void>;
  readonly #names = new Map<string, Map<string, Claim>>();
  #timer: Timer | null = null;
  #timerAt = Infinity;
  #closed = false;

  /** `end` removes claims whose time is over. Those that are still here afterwards are given to it again after a pause. */
  constructor(clock: Clock, end: (due: readonly Claim[]) => Promise<void>) {
    this.#clock = clock;
    this.#end = end;
  }

  get({ name, id }: ClaimRef): Claim | undefined {
    return this.#names.get(name)?.get(id);
  }

  ofName(name: string): Iterable<Claim> {
    return this.#names.get(name)?.values() ?? [];
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

  delete(claim: Claim): void {
    const named = this.#names.get(claim.name);
    if (named?.get(claim.id) !== claim) return;
    named.delete(claim.id);
    if (named.size === 0) this.#names.delete(claim.name);
  }

  endAt(claim: Claim, at: number): void {
    claim.endsAt = at;
    this.#checkAt(at);
  }

  /** Forgets all of them, and says which they were. */
  close(): readonly Claim[] {
    this.#closed = true;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    const all = this.all;
    this.#names.clear();
    return all;
  }

  /** Heartbeats move an end and leave the timer alone: the ends are compared again when it fires. */
  #checkAt(at: number): void {
    if (this.#closed || at >= this.#timerAt) return;
    if (this.#timer !== null) this.#clock.cancel(this.#timer);
    this.#timerAt = at;
    this.#timer = this.#clock.after(Math.max(0, at - this.#clock.now()), () => void this.#check());
  }

  async #check(): Promise<void> {
    this.#timer = null;
    const now = this.#clock.now();
    const due = this.all.filter(({ endsAt }) => endsAt <= now);
    if (due.length > 0) await this.#end(due);
    this.#timerAt = Infinity;
    for (const { endsAt } of this.all) this.#checkAt(endsAt > now ? endsAt : this.#clock.now() + TRY_AGAIN_MS);
  }
}
