import type { Fence, Queued } from "../core/engine.js";
import type { Known, Queue, QueueEntry } from "./queue.js";

/** What a store knows of the entries in its queues. */
export interface EntryReader {
  /** Null when it has left meanwhile. */
  know(name: string, entry: QueueEntry): Promise<Known | null>;
  /** Within this time it shows that a holder died: a push tells, and asking then is for a push that was lost. */
  deathShowsMs(queue: Queue): number;
}

/** The token, with the oldest among those that hold beside it; or with all of them. */
export async function fenceOf(
  reader: EntryReader,
  { name, exact }: { readonly name: string; readonly exact: boolean },
  token: number,
  holders: readonly QueueEntry[],
): Promise<Fence> {
  if (exact) {
    const known = await Promise.all(holders.map((holder) => reader.know(name, holder)));
    const tokens = known.flatMap((one) => (one === null ? [] : [one.token]));
    const live = [...new Set([token, ...tokens])].toSorted((a, b) => a - b);
    return { token, floor: live[0] ?? token, live };
  }
  for (const holder of holders) {
    const known = await reader.know(name, holder);
    if (known !== null) return { token, floor: Math.min(token, known.token) };
  }
  return { token, floor: token };
}

/** What a claim is told that waits. */
export async function queuedOf(
  reader: EntryReader,
  name: string,
  queue: Queue,
  own: QueueEntry,
  token: number,
): Promise<Queued> {
  const nextMs = queue.isFirstWaiter(own) ? reader.deathShowsMs(queue) : null;
  return { kind: "queued", token, nextMs, ...(await holderOf(reader, name, queue)) };
}

/** Who holds it first, where that is known. */
export async function holderOf(reader: EntryReader, name: string, queue: Queue): Promise<Pick<Queued, "holder">> {
  const [first] = queue.holders;
  const owner = first === undefined ? undefined : (await reader.know(name, first))?.owner;
  return owner === undefined ? {} : { holder: owner };
}

/** Of a claim beside which nobody holds. */
export function aloneOf({ token, exact }: { readonly token: number; readonly exact: boolean }): Fence {
  return { token, floor: token, ...(exact ? { live: [token] } : {}) };
}
