import type { InspectFilter, NameState } from "../../core/inspect.js";
import { waiterLeaseMs } from "../../core/limits.js";
import { nameStateOf } from "../../queue/inspect.js";
import { unescaped } from "./node-names.js";
import type { Nodes } from "./nodes.js";

/** Where claims come and go all the time, somebody is always missing. */
const TRIES_MAX = 10;

/** The names that have a folder. */
export async function* namesOf(nodes: Nodes, { name }: InspectFilter): AsyncGenerator<string> {
  // A write first: this server may lag behind what another client was told.
  await nodes.session.write((client) => client.confirm([]));
  if (name !== undefined) {
    yield name;
    return;
  }
  const folders = await nodes.session.read((client) => client.children(nodes.base));
  // Cells and the like begin with a tilde, which no name does.
  for (const node of folders?.names ?? []) if (!node.startsWith("~")) yield unescaped(node);
}

/** When a lease ends is kept by the claim's own client: shown is how long it lasts at most without a heartbeat. */
export async function stateOf(nodes: Nodes, name: string): Promise<NameState | null> {
  for (let tries = 1; ; tries += 1) {
    const queue = await nodes.queue(name);
    const all = await Promise.all(queue.entries.map((entry) => nodes.know(name, entry)));
    // One of them left meanwhile, or was replaced.
    if (all.includes(null) && tries < TRIES_MAX) continue;
    const known = new Map(queue.entries.map((entry, index) => [entry, all[index] ?? null]));
    return nameStateOf(name, queue, (entry, holds) => {
      const one = known.get(entry) ?? null;
      const leaseMs = one?.leaseMs ?? 0;
      const leftMs = holds ? leaseMs : waiterLeaseMs(leaseMs);
      return one && { known: one, units: entry.units ?? queue.limit, leftMs };
    });
  }
}
