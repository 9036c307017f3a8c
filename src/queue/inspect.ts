import { type HolderState, type InspectFilter, type NameState, unknownOwner } from "../core/inspect.js";
import type { Known, Queue, QueueEntry } from "./queue.js";

/** The queues of the names that a store found, each as it was at one moment; idle ones are left out. */
export async function* inspectNames(
  { prefix = "" }: InspectFilter,
  names: AsyncIterable<string>,
  stateOf: (name: string) => Promise<NameState | null>,
): AsyncGenerator<NameState> {
  for await (const name of names) {
    const state = name.startsWith(prefix) ? await stateOf(name) : null;
    if (state !== null) yield state;
  }
}

/** What is shown of an entry. */
type Shown = { readonly known: Known; readonly units: number; readonly leftMs: number };

/** What `inspect` shows of a queue; null when nobody is left in it. `show`: null for an entry that has ended, or left meanwhile. */
export function nameStateOf<Entry extends QueueEntry>(
  name: string,
  queue: Queue<Entry>,
  show: (entry: Entry, holds: boolean) => Shown | null,
): NameState | null {
  const shown = (entries: readonly Entry[], holds: boolean): HolderState[] =>
    entries.flatMap((entry) => {
      const one = show(entry, holds);
      if (one === null) return [];
      const id = entry.id ?? entry.key;
      const { units, leftMs } = one;
      const { token, data, owner = unknownOwner(id) } = one.known;
      return [{ id, units, leftMs, owner, token, ...(data === undefined ? {} : { data }) }];
    });
  const [holders, waiting] = [shown(queue.holders, true), shown(queue.waiters, false)];
  if (holders.length + waiting.length === 0) return null;
  const newest = waiting.at(-1) ?? holders.at(-1);
  const waiters = waiting.map((waiter) => {
    const { token: _, ...state } = waiter;
    return state;
  });
  return { name, capacity: queue.limit, lastToken: newest?.token ?? 0, holders, waiters };
}
