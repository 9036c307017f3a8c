import type { CellAnswer } from "../core/cells.js";
import type { ClaimAnswer, ClaimRequest, EngineEvent, RenewAnswer, RenewRequest } from "../core/engine.js";
import type { NameState } from "../core/inspect.js";
import { TOMBSTONE_MS, waiterLeaseMs } from "../core/limits.js";
import type { Value } from "./lock-table.js";

/** The longest lease of a waiting claim, whatever its own lease. */
const WAITER_MAX_MS = waiterLeaseMs(Infinity);

/** JSON, because a database's text cannot hold every string: the character NUL, half a surrogate pair. */
function jsonOf(text: string | null | undefined): string | null {
  return text === undefined || text === null ? null : JSON.stringify(text);
}

export function claimArgs(claim: ClaimRequest, client: string, hears: boolean): readonly Value[] {
  const { name, id, units, capacity, leaseMs, wait, owner, data, exact = false, tokenAtLeast = 0 } = claim;
  const times = [Math.ceil(leaseMs), Math.ceil(waiterLeaseMs(leaseMs))];
  const rest = [JSON.stringify(owner), jsonOf(data), exact, tokenAtLeast, client, hears];
  return [name, id, units, capacity, ...times, wait, ...rest];
}

export function releaseArgs(name: string, id: string, settled: boolean, client: string): readonly Value[] {
  return [name, id, settled, TOMBSTONE_MS, client];
}

export function renewArgs(signs: readonly RenewRequest[]): readonly Value[] {
  // 0 for what is not given: PostgreSQL does not understand a NULL in an array where array_nulls is off.
  return [
    signs.map(({ name }) => name),
    signs.map(({ id }) => id),
    signs.map(({ leaseMs = 0 }) => Math.ceil(leaseMs)),
    signs.map(({ tokenAtLeast = 0 }) => tokenAtLeast),
    WAITER_MAX_MS,
  ];
}

export function cellArgs(
  name: string,
  operation: string,
  expected: number,
  value: string | null,
  channel: string,
): readonly Value[] {
  return [name, operation, expected, jsonOf(value), TOMBSTONE_MS, channel];
}

// The functions answer in the words of the contract, so that there is nothing to translate; only the database writes them.
export const parseAnswer = (text: string): ClaimAnswer => JSON.parse(text) as ClaimAnswer;
export const parseRenewals = (text: string): readonly RenewAnswer[] => JSON.parse(text) as readonly RenewAnswer[];
export const parseCellAnswer = (text: string): CellAnswer => JSON.parse(text) as CellAnswer;
export const parsePage = (text: string): { readonly states: readonly NameState[]; readonly next: string | null } =>
  JSON.parse(text) as { states: NameState[]; next: string | null };
export const parseSwept = (
  text: string,
): { readonly next: string | null; readonly rows: number; readonly full: boolean } =>
  JSON.parse(text) as { next: string | null; rows: number; full: boolean };

/** A message on the client's channel; undefined when it is not ours. */
export function parseEvent(text: string): EngineEvent | undefined {
  try {
    const event = JSON.parse(text) as EngineEvent;
    return event.kind === "granted" || event.kind === "lost" ? event : undefined;
  } catch {
    // Anybody may send on a channel; what cannot be read was not sent by the lock table.
    return undefined;
  }
}

export function parseWord<T extends string>(text: string, ...words: readonly T[]): T {
  const word = words.find((one) => one === text);
  if (word === undefined) throw new Error(`the lock table answered ${JSON.stringify(text.slice(0, 80))}`);
  return word;
}
