import type { HolderState, NameState } from "../core/inspect.js";
import type { Queue, QueueEntry } from "./queue.js";

/** What `inspect` shows of a queue; null when nobody is left in it. `show`: null for an entry that has left meanwhile. */
export function nameStateOf<Entry extends QueueEntry>(
  name: string,
  queue: Queue<Entry>,
  show: (entry: Entry, holds: boolean) => HolderState | null,
): NameState | null {
  const shown = (entries: readonly Entry[], holds: boolean): HolderState[] =>
    entries.map((entry) => show(entry, holds)).filter((state) => state !== null);
  const [holders, waiting] = [shown(queue.holders, true), shown(queue.waiters, false)];
  if (holders.length + waiting.length === 0) return null;
  const waiters = waiting.map((waiter) => {
    const { token: _, ...state } = waiter;
    return state;
  });
  return { name, capacity: queue.limit, lastToken: holders.at(-1)?.token ?? 0, holders, waiters };
}
