import type { ClaimRef, Engine } from "../../core/engine.js";
import type { HolderState, InspectFilter, NameState } from "../../core/inspect.js";
import type { Parts } from "./parts.js";
import { quorumSize } from "./size.js";
import { answersOf, poll, QuorumNotReached } from "./vote.js";

/** Looking at all names of a store takes longer than a vote. */
const INSPECT_LIMIT_MS = 2_000;

/** What a quorum holds. A claim that stands on fewer members is a vote that somebody has yet to win or to give back. */
export async function inspect(parts: Parts, filter: InspectFilter): Promise<readonly NameState[]> {
  const byName = new Map<string, NameState[]>();
  for (const state of await statesOf(parts, filter)) {
    byName.set(state.name, [...(byName.get(state.name) ?? []), state]);
  }
  return [...byName.values()].flatMap((states) => merged(states, parts.members.length));
}

/** A claim as any member knows it, however few those are; undefined when a majority knows nothing of it. */
export async function find(
  parts: Parts,
  { name, id }: ClaimRef,
): Promise<(HolderState & { readonly capacity: number }) | undefined> {
  for (const { capacity, holders } of await statesOf(parts, { name })) {
    const holder = holders.find((one) => one.id === id);
    if (holder !== undefined) return { ...holder, capacity };
  }
  return undefined;
}

/** What each member says, of all that answer in time; rejects when those are no majority. */
async function statesOf({ members, settings }: Parts, filter: InspectFilter): Promise<readonly NameState[]> {
  const majority = quorumSize(members.length, 1);
  const { decided } = poll<readonly NameState[], readonly NameState[]>(settings.clock, {
    members,
    limitMs:
      filter.name === undefined ? Math.max(INSPECT_LIMIT_MS, settings.memberTimeoutMs) : settings.memberTimeoutMs,
    ask: (engine) => collect(engine, filter),
    decide(votes, open) {
      if (open > 0) return undefined;
      const answers = answersOf(votes);
      if (answers.length < majority) throw new QuorumNotReached(majority, members.length, votes);
      return answers.flat();
    },
  });
  return decided;
}

async function collect(engine: Engine, filter: InspectFilter): Promise<readonly NameState[]> {
  const states: NameState[] = [];
  for await (const state of engine.inspect(filter)) states.push(state);
  return states;
}

function merged(states: readonly NameState[], members: number): readonly NameState[] {
  const [first] = states;
  if (first === undefined) return [];
  const capacity = most(states.map((state) => state.capacity));
  const needed = quorumSize(members, capacity);
  const copies = new Map<string, HolderState[]>();
  for (const { holders } of states) {
    for (const holder of holders) copies.set(holder.id, [...(copies.get(holder.id) ?? []), holder]);
  }
  const holders = [...copies.values()]
    .filter((same) => same.length >= needed)
    .map((same) => holderOf(same, needed))
    .toSorted((one, two) => one.token - two.token);
  if (holders.length === 0) return [];
  const lastToken = Math.max(...states.map((state) => state.lastToken));
  return [{ name: first.name, capacity, lastToken, holders, waiters: [] }];
}

function holderOf(same: readonly HolderState[], needed: number): HolderState {
  const [first] = same;
  if (first === undefined) throw new Error("invariant: a holder without a copy");
  const leftMs = same.map((one) => one.leftMs).toSorted((one, two) => two - one)[needed - 1] ?? 0;
  return { ...first, leftMs, token: most(same.map((one) => one.token)), units: most(same.map((one) => one.units)) };
}

/** The value that occurs most often. */
function most(values: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].reduce((one, two) => (two[1] > one[1] ? two : one))[0];
}
