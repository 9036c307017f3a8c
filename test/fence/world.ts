import type { FenceToken } from "../../src/fence/index.js";

/** A seeded generator: the same numbers for the same seed (mulberry32). */
export function numbers(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

/** Somebody who was granted a permit, and may write long after it ended. */
type Holder = {
  readonly token: number;
  /** Who lived when it was granted, itself among them. */
  readonly liveAtGrant: readonly number[];
  /** What the store told it last: at the grant, or at a renewal. */
  known: readonly number[];
  alive: boolean;
};

/** Several writes under way at once, or a raise. Whoever is alive at that time must not be refused. */
export type Step =
  | { readonly kind: "writes"; readonly writes: readonly Write[] }
  | { readonly kind: "raise"; readonly token: number };
export type Write = {
  readonly holder: Holder;
  readonly shown: FenceToken;
  readonly floor: number;
  readonly alive: boolean;
  readonly value: string;
};

/**
 * A semaphore (a mutex, if its capacity is 1) whose holders end, are paused, renew, and write whenever they wake up, in `least`
 * steps or a few more.
 */
export function* world(draw: (below: number) => number, exact: boolean, least = 10): Generator<Step> {
  const capacity = 1 + draw(4);
  const holders: Holder[] = [];
  const live = (): Holder[] => holders.filter(({ alive }) => alive);
  const liveTokens = (): number[] => live().map(({ token }) => token);
  let token = 1 + draw(3);
  let writes = 0;
  for (let left = least + draw(14); left > 0; left -= 1) {
    const event = draw(10);
    const now = live();
    if (event < 3 && now.length < capacity) {
      const known = [...liveTokens(), token];
      holders.push({ token, liveAtGrant: known, known, alive: true });
      token += 1 + draw(3);
    } else if (event === 3) {
      const ended = now[draw(now.length || 1)];
      if (ended !== undefined) ended.alive = false;
    } else if (event === 4) {
      const renewed = now[draw(now.length || 1)];
      if (renewed !== undefined) renewed.known = liveTokens();
    } else if (event === 5 && draw(6) === 0 && holders.length > 0) {
      yield { kind: "raise", token: holders[draw(holders.length)]?.token ?? 1 };
    } else if (holders.length > 0) {
      const count = draw(3) === 0 ? 2 + draw(2) : 1;
      yield {
        kind: "writes",
        writes: Array.from({ length: count }, () => {
          const holder = holders[draw(holders.length)] as Holder;
          const floor = Math.min(...holder.known);
          const plain = capacity === 1 && draw(2) === 0;
          const hold = { token: holder.token, floor, ...(exact ? { live: holder.known } : {}) };
          writes += 1;
          return {
            holder,
            floor,
            shown: plain && !exact ? holder.token : hold,
            alive: holder.alive,
            value: `w${writes}`,
          };
        }),
      };
    }
  }
}

/** What a resource has accepted so far, and what it therefore must not do. Knows nothing of how a fence works. */
export class History {
  readonly #exact: boolean;
  readonly #accepted: readonly Write[];
  readonly #raised: number;
  readonly value: string | null;

  constructor(exact: boolean, accepted: readonly Write[] = [], raised = 0, value: string | null = null) {
    this.#exact = exact;
    this.#accepted = accepted;
    this.#raised = raised;
    this.value = value;
  }

  raise(token: number): History {
    return new History(this.#exact, this.#accepted, Math.max(this.#raised, token), this.value);
  }

  get #highestFloor(): number {
    return Math.max(this.#raised, ...this.#accepted.map(({ floor }) => floor));
  }

  accept(write: Write): History {
    return new History(this.#exact, [...this.#accepted, write], this.#raised, write.value);
  }

  /** What is wrong with accepting this write now; null when nothing is. */
  wrongToAccept(write: Write): string | null {
    const { token } = write.holder;
    if (token < this.#highestFloor) return `token ${token} was accepted below the floor ${this.#highestFloor}`;
    if (!this.overtaken(write)) return null;
    if (this.#exact) return `token ${token}, dead before a newer accepted grant was made, was accepted`;
    // The limit of a floor: a dead permit is refused only when no older one lives.
    const olderLived = this.#accepted.some(({ floor, holder }) => holder.token > token && floor < token);
    return olderLived ? null : `token ${token}, dead, was accepted although no older permit lived`;
  }

  wrongToRefuse(write: Write): string | null {
    const { token } = write.holder;
    if (write.alive && token >= this.#raised) return `the live holder of ${token} was refused`;
    return null;
  }

  /** Dead, and known to be dead to a newer grant whose write was accepted. */
  overtaken({ holder }: Write): boolean {
    return this.#accepted.some(
      ({ holder: newer }) => newer.token > holder.token && !newer.liveAtGrant.includes(holder.token),
    );
  }
}
