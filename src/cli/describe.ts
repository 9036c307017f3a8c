import { type NameState, ownerText, type WaiterState } from "../core/inspect.js";
import { READERS_MAX } from "../core/limits.js";
import { table } from "./print.js";

/** How long, in the two largest units. */
export function ageText(ms: number): string {
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(Math.max(0, ms))} ms`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

/** What a name is, by its capacity. */
function kindText(capacity: number): string {
  if (capacity === 1) return "mutex";
  return capacity === READERS_MAX ? "read-write" : `semaphore of ${capacity}`;
}

/** Which side of a read-write lock, or how many permits. */
function unitsText(units: number, capacity: number): string {
  if (capacity === READERS_MAX) return units === READERS_MAX ? "write" : "read";
  return String(units);
}

const leftText = (ms: number): string => (Number.isFinite(ms) ? ageText(ms) : "for ever");
const known = (ms: number | undefined | null): string => (ms == null ? "-" : ageText(ms));

/** One name a line. */
export function listText(states: readonly NameState[]): string {
  const rows = states.map((state) => {
    const { holders, waiters } = state;
    const [first, ...others] = holders;
    const holder = first === undefined ? "-" : ownerText(first.owner);
    const more = others.length === 0 ? "" : ` and ${others.length} more`;
    return [state.name, kindText(state.capacity), `${holder}${more}`, known(first?.heldMs), String(waiters.length)];
  });
  return rows.length === 0 ? "nothing is held" : table([["NAME", "KIND", "HELD BY", "FOR", "WAITING"], ...rows]);
}

/** Everything about one name: holders by token, waiters in order. */
export function stateText({ name, capacity, lastToken, holders, waiters }: NameState): string {
  const held = holders.map((one) => [
    "holds",
    unitsText(one.units, capacity),
    ownerText(one.owner),
    known(one.heldMs),
    leftText(one.leftMs),
    String(one.token),
  ]);
  const waiting = waiters.map((one, n) => [
    `waits ${n + 1}.`,
    unitsText(one.units, capacity),
    ownerText(one.owner),
    known(one.waitingMs),
    leftText(one.leftMs),
    "-",
  ]);
  const head = table([["", "UNITS", "WHO", "FOR", "LEASE LEFT", "TOKEN"], ...held, ...waiting]);
  return `${table([[`${name}: ${kindText(capacity)}, last token ${lastToken}`]])}\n${head}`;
}

/** A name that somebody waits for, and a hold; the times are null where the store does not know them. */
export type Stats = {
  readonly waiting: readonly {
    readonly name: string;
    readonly kind: string;
    readonly waiters: number;
    readonly waitingMs: number | null;
  }[];
  readonly holding: readonly {
    readonly name: string;
    readonly kind: string;
    readonly units: string;
    readonly holder: string;
    readonly heldMs: number | null;
    readonly leftMs: number;
  }[];
};

/** The longest first. What has no known time comes behind: names by how many wait, holds by their names. */
export function statsOf(states: readonly NameState[], top: number): Stats {
  const waiting = states
    .filter(({ waiters }) => waiters.length > 0)
    .map(({ name, capacity, waiters }) => ({
      ...{ name, kind: kindText(capacity), waiters: waiters.length, waitingMs: longest(waiters) },
    }))
    .toSorted((a, b) => byAge(a.waitingMs, b.waitingMs) || b.waiters - a.waiters);
  const holding = states
    .flatMap(({ name, capacity, holders }) =>
      holders.map(({ units, owner, heldMs = null, leftMs }) => ({
        ...{ name, kind: kindText(capacity), units: unitsText(units, capacity), holder: ownerText(owner) },
        ...{ heldMs, leftMs },
      })),
    )
    .toSorted((a, b) => byAge(a.heldMs, b.heldMs));
  return { waiting: waiting.slice(0, top), holding: holding.slice(0, top) };
}

function longest(waiters: readonly WaiterState[]): number | null {
  const known = waiters.flatMap(({ waitingMs }) => waitingMs ?? []);
  return known.length === 0 ? null : Math.max(...known);
}

const byAge = (a: number | null, b: number | null): number => (b ?? -1) - (a ?? -1);

export function statsText({ waiting, holding }: Stats): string {
  if (holding.length + waiting.length === 0) return "nothing is held";
  const queues = waiting.map(({ name, kind, waiters, waitingMs }) => [name, kind, String(waiters), known(waitingMs)]);
  const holds = holding.map(({ name, kind, units, holder, heldMs, leftMs }) => [
    ...[name, kind, units, holder, known(heldMs)],
    leftText(leftMs),
  ]);
  const head = waiting.length === 0 ? "nobody waits" : table([["WAITED FOR", "KIND", "WAITING", "LONGEST"], ...queues]);
  return `${head}\n\n${table([["HELD", "KIND", "UNITS", "BY", "FOR", "LEASE LEFT"], ...holds])}`;
}
