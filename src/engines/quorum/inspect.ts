import type { ClaimRef, ClaimRequest, Engine } from "../../core/engine.js";
import type { HolderState, InspectFilter, NameState, WaiterState } from "../../core/inspect.js";
import { QuorumNotReached } from "./errors.js";
import type { Members } from "./members.js";
import { quorumSize } from "./size.js";
import { TURN_SUFFIX, turnNameOf } from "./turn.js";
import { answersOf } from "./vote.js";

/**
 * To list all names of a store takes longer than a vote: some ask for each name, the idle ones too. Each of those calls has a
 * limit of its own, so a store that hangs ends its listing before this does.
 */
const LISTING_LIMIT_MS = 60_000;

/** What a quorum holds. A claim that fewer members hold is yet to be granted or to be given back; so is one that waits. */
export async function inspect(members: Members, filter: InspectFilter): Promise<readonly NameState[]> {
  const byName = new Map<string, NameState[]>();
  const queues = new Map<string, NameState[]>();
  const turns = filter.name === undefined ? [] : await statesOf(members, { name: turnNameOf(filter.name) });
  for (const state of [...(await statesOf(members, filter)), ...turns]) {
    const isQueue = state.name.endsWith(TURN_SUFFIX);
    const name = isQueue ? (filter.name ?? state.name.slice(0, -TURN_SUFFIX.length)) : state.name;
    const states = isQueue ? queues : byName;
    states.set(name, [...(states.get(name) ?? []), state]);
  }
  return [...byName].flatMap(([name, states]) => merged(states, queues.get(name) ?? [], members.count));
}

/** Whether so many members have room for the claim that it could be held now. False also when too few answer. */
export async function hasRoom(members: Members, { name, units, capacity }: ClaimRequest): Promise<boolean> {
  const needed = members.quorum(capacity);
  const { decided } = members.ask<readonly NameState[], boolean>({
    ask: (engine) => collect(engine, { name }),
    decide(votes, open) {
      const free = answersOf(votes).filter(([state]) => state === undefined || takenOf(state) + units <= capacity);
      if (free.length >= needed) return true;
      return free.length + open < needed ? false : undefined;
    },
  });
  return decided;
}

function takenOf({ holders }: NameState): number {
  return holders.reduce((sum, holder) => sum + holder.units, 0);
}

/** A claim as any member knows it, however few those are; undefined when a majority knows nothing of it. */
export async function find(
  members: Members,
  { name, id }: ClaimRef,
): Promise<(HolderState & { readonly capacity: number }) | undefined> {
  for (const { capacity, holders } of await statesOf(members, { name })) {
    const holder = holders.find((one) => one.id === id);
    if (holder !== undefined) return { ...holder, capacity };
  }
  return undefined;
}

/** The states of all members that answer in time; rejects when those are no majority. */
async function statesOf(members: Members, filter: InspectFilter): Promise<readonly NameState[]> {
  const { majority, timeoutMs } = members;
  const { decided } = members.ask<readonly NameState[], readonly NameState[]>({
    limitMs: filter.name === undefined ? Math.max(LISTING_LIMIT_MS, timeoutMs) : timeoutMs,
    ask: (engine) => collect(engine, filter),
    decide(votes, open) {
      if (open > 0) return undefined;
      const answers = answersOf(votes);
      if (answers.length < majority) throw new QuorumNotReached(majority, members.count, votes);
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

function merged(states: readonly NameState[], queues: readonly NameState[], members: number): readonly NameState[] {
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
  const held = new Set(holders.map(({ id }) => id));
  // Who has its turn and no votes yet comes first.
  const waiters = queues.flatMap((queue) => [...queue.holders, ...queue.waiters]).filter(({ id }) => !held.has(id));
  return [{ name: first.name, capacity, lastToken, holders, waiters: waiters.map(waiterOf) }];
}

/** Since it came into the queue, by the clock of the member that keeps it. That knows no more of one whose turn it is: it waits for votes. */
function waiterOf({ id, units, leftMs, owner, data, waitingMs }: WaiterState): WaiterState {
  const known = waitingMs === undefined ? {} : { waitingMs };
  return { id, units, leftMs, owner, ...(data === undefined ? {} : { data }), ...known };
}

function holderOf(same: readonly HolderState[], needed: number): HolderState {
  const [first] = same;
  if (first === undefined) throw new Error("invariant: a holder without a copy");
  const leftMs = nth(
    same.map((one) => one.leftMs),
    needed,
  );
  // As with the time left: since when so many have had it as may grant it. A member that had to be asked again counts from then.
  const heldMs = nth(
    same.flatMap((one) => one.heldMs ?? []),
    needed,
  );
  const { heldMs: _, ...rest } = first;
  const [token, units] = [most(same.map((one) => one.token)), most(same.map((one) => one.units))];
  return { ...rest, leftMs: leftMs ?? 0, token, units, ...(heldMs === undefined ? {} : { heldMs }) };
}

/** The nth largest; undefined when there are fewer. */
function nth(values: readonly number[], n: number): number | undefined {
  return values.toSorted((one, two) => two - one)[n - 1];
}

/** The value that occurs most often. */
function most(values: readonly number[]): number {
  const counts = new Map<number, number>();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].reduce((one, two) => (two[1] > one[1] ? two : one))[0];
}
