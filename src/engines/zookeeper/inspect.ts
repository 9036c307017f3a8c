import type { ClaimState, HolderState, InspectFilter, NameState } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { Line } from "./line.js";
import { type Entry, escaped, unescaped } from "./names.js";
import { ownerOf } from "./show.js";
import type { Known, Store } from "./store.js";

/** Where claims come and go all the time, somebody is always missing. */
const LOOKS_MAX = 10;

export async function* inspectNames(store: Store, { name, prefix = "" }: InspectFilter): AsyncGenerator<NameState> {
  const matches = (text: string): boolean => text.startsWith(prefix) && (name === undefined || text === name);
  // A write first: this server may lag behind what another client was told.
  await store.session.write((client) => client.confirm([]));
  const nodes = name === undefined ? await store.session.read((client) => client.children(store.base)) : null;
  for (const node of nodes?.names ?? (name === undefined ? [] : [escaped(name)])) {
    // Cells and the like begin with a tilde, which no name does.
    const text = unescaped(node);
    if (node.startsWith("~") || !matches(text)) continue;
    const state = await stateOf(store, text);
    if (state !== null) yield state;
  }
}

async function stateOf(store: Store, name: string): Promise<NameState | null> {
  for (let tries = 1; ; tries += 1) {
    const line = await store.line(name);
    const known = await Promise.all(line.entries.map((entry) => store.know(name, entry)));
    // One of them left while we looked, or stands under another name now.
    if (known.includes(null) && tries < LOOKS_MAX) continue;
    return shownOf(name, line, known);
  }
}

function shownOf(name: string, line: Line, known: readonly (Known | null)[]): NameState | null {
  const holders: HolderState[] = [];
  const waiters: ClaimState[] = [];
  const seen = new Set<string>();
  line.entries.forEach((entry, index) => {
    const what = known[index];
    // A client without transactions replaces a node in two steps: for a moment both are there.
    if (what == null || seen.has(entry.id ?? entry.node)) return;
    seen.add(entry.id ?? entry.node);
    const holds = line.holds(entry);
    const state = shown(entry, what, line.capacity, holds);
    if (holds) holders.push({ ...state, token: what.token });
    else waiters.push(state);
  });
  if (seen.size === 0) return null;
  return { name, capacity: line.capacity, lastToken: holders.at(-1)?.token ?? 0, holders, waiters };
}

/** When a lease ends is kept by the claim's own client: shown is how long it lasts at most without a heartbeat. */
function shown(entry: Entry, known: Known, capacity: number, holds: boolean): ClaimState {
  const leaseMs = known.leaseMs ?? 0;
  return {
    id: entry.id ?? entry.node,
    units: entry.id === null ? capacity : entry.units,
    leftMs: holds ? leaseMs : waiterLeaseMs(leaseMs),
    owner: ownerOf(known),
    ...(known.data === undefined ? {} : { data: known.data }),
  };
}
