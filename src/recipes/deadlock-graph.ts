import type { ClaimRef } from "../core/engine.js";
import type { DeadlockLink } from "../core/errors.js";
import type { ClaimState, NameState } from "../core/inspect.js";

/** What a waiting claim says of its flow of control. `since` is by its own clock: only to agree on who came last. */
export type Stake = { readonly flow: string; readonly since: number; readonly holds: readonly ClaimRef[] };

/** `victim`: the flow that gives up. `waits`: the claims of the cycle, by id. `signature`: everything that the verdict rests on, as text. */
export type Deadlock = {
  readonly victim: string;
  readonly cycle: readonly DeadlockLink[];
  readonly waits: readonly string[];
  readonly signature: string;
};

/** A claim that waits, with the state of its name. */
type Wait = { readonly state: NameState; readonly claim: ClaimState; readonly stake: Stake | null };

export function stakeOf({ data }: ClaimState): Stake | null {
  if (data === undefined) return null;
  try {
    const { stake } = JSON.parse(data) as { stake?: Partial<Stake> };
    return isStake(stake) ? stake : null;
  } catch {
    // Data of another kind.
    return null;
  }
}

/** Others wrote it: any program that claims may say anything. */
function isStake(stake: Partial<Stake> | undefined): stake is Stake {
  const isRef = (hold: Partial<ClaimRef> | null): boolean =>
    typeof hold?.name === "string" && typeof hold.id === "string";
  return typeof stake?.flow === "string" && Array.isArray(stake.holds) && stake.holds.every(isRef);
}

/** The deadlock that this flow is part of, or null. */
export function findDeadlock(states: readonly NameState[], flow: string): Deadlock | null {
  const graph = new Graph(states);
  const own = graph.stuck().find(({ stake }) => stake?.flow === flow);
  if (own === undefined) return null;
  const reached = graph.reachedFrom(own);
  // Where all roads lead back, and only there: what waits for another deadlock may be free once that one is solved.
  if (!reached.has(own) || [...reached].some((wait) => !graph.reachedFrom(wait).has(own))) return null;
  const flows = [...reached].flatMap(({ stake }) => (stake === null ? [] : [stake]));
  const last = flows.reduce((a, b) => (b.since > a.since || (b.since === a.since && b.flow > a.flow) ? b : a));
  const way = graph.cycleOf(own);
  const cycle = way.map(({ state, claim, stake }) => ({
    owner: claim.owner,
    holds: (stake?.holds ?? []).map(({ name }) => name),
    waitsFor: state.name,
  }));
  const parts = [...reached].map(({ state, claim }) => [
    [state.name, state.capacity, claim.id, claim.units],
    ...state.holders.map(({ id, units }) => [id, units]),
  ]);
  const waits = way.map(({ claim }) => claim.id);
  const signature = JSON.stringify(parts.map((part) => JSON.stringify(part)).toSorted());
  return { victim: last.flow, cycle, waits, signature };
}

/** Who waits for whom. */
class Graph {
  readonly #waits: readonly Wait[];
  readonly #stuck: Set<Wait>;

  constructor(states: readonly NameState[]) {
    this.#waits = states.flatMap((state) => state.waiters.map((claim) => ({ state, claim, stake: stakeOf(claim) })));
    // Suspect everybody, then let go whoever can still be granted, and what depends on them, until nothing changes.
    this.#stuck = new Set(this.#waits);
    for (let before = Infinity; this.#stuck.size < before; ) {
      before = this.#stuck.size;
      for (const state of states) this.#letGo(state);
    }
  }

  stuck(): readonly Wait[] {
    return [...this.#stuck];
  }

  /** Everything that this wait waits for, over any number of steps. */
  reachedFrom(start: Wait): Set<Wait> {
    const reached = new Set<Wait>();
    const left = [...this.#next(start)];
    for (let wait = left.pop(); wait !== undefined; wait = left.pop()) {
      if (reached.has(wait)) continue;
      reached.add(wait);
      left.push(...this.#next(wait));
    }
    return reached;
  }

  /** The shortest way from a wait back to itself. */
  cycleOf(start: Wait): Wait[] {
    const ways: Wait[][] = [[start]];
    const seen = new Set<Wait>();
    for (let way = ways.shift(); way !== undefined; way = ways.shift()) {
      for (const next of this.#next(way.at(-1) as Wait)) {
        if (next === start) return way;
        if (!seen.has(next)) ways.push([...way, next]);
        seen.add(next);
      }
    }
    return [start];
  }

  /** In order of arrival, everybody who fits beside the holders that are stuck will be granted; and nobody overtakes. */
  #letGo(state: NameState): void {
    for (const wait of this.#waits.filter((one) => one.state === state)) {
      if (this.#blockedByHolders(wait)) return;
      this.#stuck.delete(wait);
    }
  }

  #blockedByHolders({ state, claim }: Wait): boolean {
    const units = state.holders.reduce(
      (sum, holder) => sum + (this.#keeping(holder.id).length > 0 ? holder.units : 0),
      0,
    );
    return units + claim.units > state.capacity;
  }

  /** The waits that keep a hold from being given back. */
  #keeping(id: string): Wait[] {
    return [...this.#stuck].filter(({ stake }) => stake?.holds.some((hold) => hold.id === id));
  }

  /** What stands in the way of a stuck wait: holders that are stuck themselves, or, if it would fit, those before it in the queue. */
  #next(wait: Wait): Wait[] {
    const { state } = wait;
    if (this.#blockedByHolders(wait)) return state.holders.flatMap(({ id }) => this.#keeping(id));
    const queue = this.#waits.filter((one) => one.state === state);
    return queue.slice(0, queue.indexOf(wait)).filter((one) => this.#stuck.has(one));
  }
}
