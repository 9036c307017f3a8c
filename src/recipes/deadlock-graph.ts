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
  const knot = own === undefined ? null : knotOf(graph, own);
  return own === undefined || knot === null ? null : deadlockOf(graph, own, knot);
}

/** Every deadlock that a flow is part of, once. */
export function findDeadlocks(states: readonly NameState[]): Deadlock[] {
  const graph = new Graph(states);
  const known = new Set<Wait>();
  const found: Deadlock[] = [];
  for (const own of graph.stuck()) {
    const knot = own.stake === null || known.has(own) ? null : knotOf(graph, own);
    if (knot === null) continue;
    for (const wait of knot) known.add(wait);
    found.push(deadlockOf(graph, own, knot));
  }
  return found;
}

/**
 * All that wait for each other with this one, or null: where all roads lead back, and only there. What waits for another deadlock may be
 * free once that one is solved.
 */
function knotOf(graph: Graph, own: Wait): ReadonlySet<Wait> | null {
  const reached = graph.reachedFrom(own);
  const leading = graph.leadingTo(own);
  return reached.has(own) && [...reached].every((wait) => leading.has(wait)) ? reached : null;
}

function deadlockOf(graph: Graph, own: Wait, reached: ReadonlySet<Wait>): Deadlock {
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

/** A name: who waits for it, in order, and those of its holds that a wait keeps from being given back, with these waits. */
type Queue = { readonly waits: readonly Wait[]; readonly kept: readonly { units: number; by: readonly Wait[] }[] };

/** Who waits for whom. */
class Graph {
  readonly #queues: ReadonlyMap<NameState, Queue>;
  readonly #stuck: Set<Wait>;
  /** What stands in the way of each that is stuck, and whose way it stands in. */
  readonly #next = new Map<Wait, readonly Wait[]>();
  readonly #before = new Map<Wait, Wait[]>();

  constructor(states: readonly NameState[]) {
    this.#queues = queuesOf(states);
    // Suspect everybody, then let go whoever can still be granted, and what depends on them, until nothing changes.
    this.#stuck = new Set(Array.from(this.#queues.values(), ({ waits }) => waits).flat());
    for (let before = Infinity; this.#stuck.size < before; ) {
      before = this.#stuck.size;
      for (const [state, queue] of this.#queues) this.#letGo(state, queue);
    }
    for (const wait of this.#stuck) {
      const next = this.#inTheWayOf(wait);
      this.#next.set(wait, next);
      for (const one of next) {
        const before = this.#before.get(one);
        if (before === undefined) this.#before.set(one, [wait]);
        else before.push(wait);
      }
    }
  }

  stuck(): readonly Wait[] {
    return [...this.#stuck];
  }

  /** Everything that this wait waits for, over any number of steps. */
  reachedFrom(start: Wait): Set<Wait> {
    return reached(start, this.#next);
  }

  /** Everything that waits for this wait, over any number of steps. */
  leadingTo(end: Wait): Set<Wait> {
    return reached(end, this.#before);
  }

  /** The shortest way from a wait back to itself. */
  cycleOf(start: Wait): Wait[] {
    const ways: Wait[][] = [[start]];
    const seen = new Set<Wait>();
    for (let way = ways.shift(); way !== undefined; way = ways.shift()) {
      for (const next of this.#next.get(way.at(-1) as Wait) ?? []) {
        if (next === start) return way;
        if (!seen.has(next)) ways.push([...way, next]);
        seen.add(next);
      }
    }
    return [start];
  }

  /** In order of arrival, everybody who fits beside the holders that are stuck will be granted; and nobody overtakes. */
  #letGo(state: NameState, queue: Queue): void {
    const units = this.#keptUnits(queue);
    for (const wait of queue.waits) {
      if (units + wait.claim.units > state.capacity) return;
      this.#stuck.delete(wait);
    }
  }

  /** What is held by holders that are stuck. */
  #keptUnits({ kept }: Queue): number {
    return kept.reduce((sum, { units, by }) => sum + (by.some((wait) => this.#stuck.has(wait)) ? units : 0), 0);
  }

  /** Holders that are stuck themselves, or, if it would fit, those before it in the queue. */
  #inTheWayOf(wait: Wait): Wait[] {
    const queue = this.#queues.get(wait.state) as Queue;
    const blocked = this.#keptUnits(queue) + wait.claim.units > wait.state.capacity;
    const all = blocked ? queue.kept.flatMap(({ by }) => by) : queue.waits.slice(0, queue.waits.indexOf(wait));
    return [...new Set(all)].filter((one) => this.#stuck.has(one));
  }
}

function queuesOf(states: readonly NameState[]): Map<NameState, Queue> {
  const keeping = new Map<string, Set<Wait>>();
  const waitsOf = (state: NameState): Wait[] =>
    state.waiters.map((claim) => {
      const wait = { state, claim, stake: stakeOf(claim) };
      for (const { id } of wait.stake?.holds ?? []) keeping.set(id, (keeping.get(id) ?? new Set()).add(wait));
      return wait;
    });
  const waits = states.map((state) => [state, waitsOf(state)] as const);
  const keptOf = ({ holders }: NameState): Queue["kept"] =>
    holders.flatMap(({ id, units }) => {
      const by = keeping.get(id);
      return by === undefined ? [] : [{ units, by: [...by] }];
    });
  return new Map(waits.map(([state, queue]) => [state, { waits: queue, kept: keptOf(state) }]));
}

function reached(start: Wait, steps: ReadonlyMap<Wait, readonly Wait[]>): Set<Wait> {
  const found = new Set<Wait>();
  const left = [...(steps.get(start) ?? [])];
  for (let wait = left.pop(); wait !== undefined; wait = left.pop()) {
    if (found.has(wait)) continue;
    found.add(wait);
    left.push(...(steps.get(wait) ?? []));
  }
  return found;
}
