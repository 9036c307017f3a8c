import type { ClaimState, HolderState, InspectFilter, NameState } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";
import type { QueueEntry } from "../../queue/queue.js";
import { ownerOf } from "./answers.js";
import { escaped, unescaped } from "./node-names.js";
import type { Known, NodeQueue, Nodes } from "./nodes.js";

/** Where claims come and go all the time, somebody is always missing. */
const TRIES_MAX = 10;

export async function* inspectNames(nodes: Nodes, { name, prefix = "" }: InspectFilter): AsyncGenerator<NameState> {
  const matches = (text: string): boolean => text.startsWith(prefix) && (name === undefined || text === name);
  // A write first: this server may lag behind what another client was told.
  await nodes.session.write((client) => client.confirm([]));
  const folders = name === undefined ? await nodes.session.read((client) => client.children(nodes.base)) : null;
  for (const node of folders?.names ?? (name === undefined ? [] : [escaped(name)])) {
    // Cells and the like begin with a tilde, which no name does.
    const text = unescaped(node);
    if (node.startsWith("~") || !matches(text)) continue;
    const state = await stateOf(nodes, text);
    if (state !== null) yield state;
  }
}

async function stateOf(nodes: Nodes, name: string): Promise<NameState | null> {
  for (let tries = 1; ; tries += 1) {
    const queue = await nodes.queue(name);
    const known = await Promise.all(queue.entries.map((entry) => nodes.know(name, entry)));
    // One of them left meanwhile, or was replaced.
    if (known.includes(null) && tries < TRIES_MAX) continue;
    return shownOf(name, queue, known);
  }
}

function shownOf(name: string, queue: NodeQueue, known: readonly (Known | null)[]): NameState | null {
  const holders: HolderState[] = [];
  const waiters: ClaimState[] = [];
  queue.entries.forEach((entry, index) => {
    const what = known[index];
    if (what == null) return;
    const holds = queue.holds(entry);
    const state = shown(entry, what, queue.limit, holds);
    if (holds) holders.push({ ...state, token: what.token });
    else waiters.push(state);
  });
  if (holders.length + waiters.length === 0) return null;
  return { name, capacity: queue.limit, lastToken: holders.at(-1)?.token ?? 0, holders, waiters };
}

/** When a lease ends is kept by the claim's own client: shown is how long it lasts at most without a heartbeat. */
function shown(entry: QueueEntry, known: Known, capacity: number, holds: boolean): ClaimState {
  const leaseMs = known.leaseMs ?? 0;
  return {
    id: entry.id ?? entry.key,
    units: entry.units ?? capacity,
    leftMs: holds ? leaseMs : waiterLeaseMs(leaseMs),
    owner: ownerOf(known),
    ...(known.data === undefined ? {} : { data: known.data }),
  };
}
