import type { HolderState, InspectFilter, NameState } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { nameStateOf } from "../../queue/inspect.js";
import type { QueueEntry } from "../../queue/queue.js";
import { ownerOf } from "./answers.js";
import { escaped, unescaped } from "./node-names.js";
import type { Known, Nodes } from "./nodes.js";

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
    const nodesOf = new Map(queue.entries.map((entry, index) => [entry, known[index] ?? null]));
    return nameStateOf(name, queue, (entry, holds) => shown(entry, nodesOf.get(entry) ?? null, queue.limit, holds));
  }
}

/** When a lease ends is kept by the claim's own client: shown is how long it lasts at most without a heartbeat. */
function shown(entry: QueueEntry, known: Known | null, capacity: number, holds: boolean): HolderState | null {
  if (known === null) return null;
  const leaseMs = known.leaseMs ?? 0;
  return {
    id: entry.id ?? entry.key,
    units: entry.units ?? capacity,
    leftMs: holds ? leaseMs : waiterLeaseMs(leaseMs),
    owner: ownerOf(known),
    token: known.token,
    ...(known.data === undefined ? {} : { data: known.data }),
  };
}
