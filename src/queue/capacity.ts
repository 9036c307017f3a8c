import type { CapacityAnswer } from "../core/engine.js";
import type { ChangedCapacity, Queue, QueueEntry } from "./queue.js";

export function capacityText({ capacity, heldUpTo }: ChangedCapacity): string {
  return JSON.stringify({ capacity, heldUpTo });
}

/** Null for anything else: other libraries write what they like. */
export function parseCapacity(text: string): ChangedCapacity | null {
  try {
    const { capacity, heldUpTo } = JSON.parse(text) as Partial<ChangedCapacity>;
    if (!Number.isSafeInteger(capacity)) return null;
    return { capacity: capacity as number, heldUpTo: typeof heldUpTo === "number" ? heldUpTo : null };
  } catch {
    return null;
  }
}

/** What there is to do to change a capacity: nothing, or to drop the waiters that would never fit and, unless it is so already, to write the record. */
export type CapacityChange<Entry> = { readonly drops: readonly Entry[]; readonly write: boolean };

export function capacityChange<Entry extends QueueEntry>(
  queue: Queue<Entry>,
  from: number,
  to: number,
): CapacityAnswer | CapacityChange<Entry> {
  if (queue.entries.length === 0) return { kind: "set" };
  // A waiter that never fits would be in the way of all behind it: also if whoever changed the capacity did not get so far.
  const drops = waitersAbove(queue, to);
  const { capacity } = queue;
  if (capacity === null || capacity === to) return drops.length === 0 ? { kind: "set" } : { drops, write: false };
  return capacity === from ? { drops, write: true } : { kind: "mismatch", capacity };
}

/** The waiters that never fit into this capacity. */
export function waitersAbove<Entry extends QueueEntry>(queue: Queue<Entry>, capacity: number): readonly Entry[] {
  return queue.waiters.filter((entry) => (entry.units ?? 1) > capacity);
}

/** Others may come between reading and writing; each time one of them got on. */
const TRIES_MAX = 50;

/** Changes the capacity of a busy name. `change` is false where somebody came first, or where it could not be done in one step. */
export async function setCapacity<Entry extends QueueEntry, More>(
  { from, to }: { readonly from: number; readonly to: number },
  read: () => Promise<More & { readonly queue: Queue<Entry> }>,
  change: (found: More & { readonly queue: Queue<Entry> }, change: CapacityChange<Entry>) => Promise<boolean>,
): Promise<CapacityAnswer> {
  for (let tries = 1; tries <= TRIES_MAX; tries += 1) {
    const found = await read();
    const todo = capacityChange(found.queue, from, to);
    if ("kind" in todo) return todo;
    if (await change(found, todo)) return { kind: "set" };
  }
  throw new Error("others came first, again and again");
}
