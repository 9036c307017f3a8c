import { type ClaimState, type HolderState, type NameState, ownerText } from "../core/inspect.js";
import { READERS_MAX } from "../core/limits.js";
import { table } from "./print.js";

/** Tokens of most stores are the time of the grant in µs; those of ZooKeeper and etcd are small counts. */
const YEAR_MS = 365 * 24 * 60 * 60 * 1000;

/** When it was granted, by the store's clock; null where the token does not say. */
export function heldSince({ token }: HolderState, nowMs: number): number | null {
  const atMs = token / 1000;
  return Math.abs(nowMs - atMs) < YEAR_MS ? atMs : null;
}

/** When it was asked for, by its own clock: claims of the command line say so. */
function askedAt({ data }: ClaimState): number | null {
  if (data === undefined) return null;
  try {
    const { askedAt: at } = JSON.parse(data) as { askedAt?: unknown };
    return typeof at === "number" ? at : null;
  } catch {
    // Data of another kind.
    return null;
  }
}

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

/** How old each claim is, where that is known: a holder since its grant, a waiter since it asked. */
export function withAges(state: NameState, nowMs: number) {
  const since = (at: number | null): number | null => (at === null ? null : Math.max(0, Math.round(nowMs - at)));
  return {
    ...state,
    holders: state.holders.map((holder) => ({ ...holder, heldMs: since(heldSince(holder, nowMs)) })),
    waiters: state.waiters.map((waiter) => ({ ...waiter, waitedMs: since(askedAt(waiter)) })),
  };
}

const leftText = (ms: number): string => (Number.isFinite(ms) ? ageText(ms) : "for ever");
const known = (ms: number | null): string => (ms === null ? "-" : ageText(ms));

/** One name a line. */
export function listText(states: readonly NameState[], nowMs: number): string {
  const rows = states.map((state) => {
    const { holders, waiters } = withAges(state, nowMs);
    const [first, ...others] = holders;
    const holder = first === undefined ? "-" : ownerText(first.owner);
    const more = others.length === 0 ? "" : ` and ${others.length} more`;
    const age = first === undefined ? "-" : known(first.heldMs);
    return [state.name, kindText(state.capacity), `${holder}${more}`, age, String(waiters.length)];
  });
  return rows.length === 0 ? "nothing is held" : table([["NAME", "KIND", "HELD BY", "FOR", "WAITING"], ...rows]);
}

/** Everything about one name: holders by token, waiters in order. */
export function stateText(state: NameState, nowMs: number): string {
  const { name, capacity, lastToken, holders, waiters } = withAges(state, nowMs);
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
    known(one.waitedMs),
    leftText(one.leftMs),
    "-",
  ]);
  const head = table([["", "UNITS", "WHO", "FOR", "LEASE LEFT", "TOKEN"], ...held, ...waiting]);
  return `${table([[`${name}: ${kindText(capacity)}, last token ${lastToken}`]])}\n${head}`;
}

/** A name that somebody waits for, and a hold; the times are null where nobody knows them. */
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
export function statsOf(states: readonly NameState[], nowMs: number, top: number): Stats {
  const aged = states.map((state) => ({ ...withAges(state, nowMs), kind: kindText(state.capacity) }));
  const waiting = aged
    .filter(({ waiters }) => waiters.length > 0)
    .map(({ name, kind, waiters }) => ({ name, kind, waiters: waiters.length, waitingMs: longest(waiters) }))
    .toSorted((a, b) => byAge(a.waitingMs, b.waitingMs) || b.waiters - a.waiters);
  const holding = aged
    .flatMap(({ name, kind, capacity, holders }) =>
      holders.map(({ units, owner, heldMs, leftMs }) => ({
        ...{ name, kind, units: unitsText(units, capacity), holder: ownerText(owner), heldMs, leftMs },
      })),
    )
    .toSorted((a, b) => byAge(a.heldMs, b.heldMs));
  return { waiting: waiting.slice(0, top), holding: holding.slice(0, top) };
}

function longest(waiters: readonly { readonly waitedMs: number | null }[]): number | null {
  const known = waiters.flatMap(({ waitedMs }) => waitedMs ?? []);
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
