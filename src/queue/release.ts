import type { ClaimRef, ReleaseAnswer, ReleaseRequest } from "../core/engine.js";
import type { LocalClaim, LocalClaims } from "./local-claims.js";
import type { Queue, QueueEntry } from "./queue.js";

/** What a store does to let a claim go. */
export interface QueueExit<Claim, Entry extends QueueEntry> {
  /** Removes the entry of a claim of ours, with a tombstone or without. Null: it is not certain where it is. */
  leave(claim: Claim, bury: boolean): Promise<ReleaseAnswer | null>;
  /** Leaves a tombstone. False when one was there before: somebody else released this claim. Null: none can be written, and none is needed. */
  bury(ref: ClaimRef): Promise<boolean | null>;
  /** The ids of those that have a tombstone. */
  buried(refs: readonly ClaimRef[]): Promise<ReadonlySet<string>>;
  /** The queue as it is, whoever changed it last. */
  queueNow(name: string): Promise<Queue<Entry>>;
  /** False when it was not there. */
  removeEntry(name: string, entry: Entry): Promise<boolean>;
}

/** Gives back or withdraws a claim, of this client or of another: the one way out. */
export async function release<Claim extends LocalClaim, Entry extends QueueEntry>(
  exit: QueueExit<Claim, Entry>,
  claims: LocalClaims<Claim>,
  { name, id, tombstone }: ReleaseRequest,
): Promise<ReleaseAnswer> {
  const ref = { name, id };
  const buries = tombstone !== "never";
  const local = claims.get(ref);
  if (local !== undefined) {
    claims.finish(local);
    const left = await exit.leave(local, buries);
    // Its time ended while this release was on its way: it left by our own hand, and nobody had the lock before.
    if (left !== null) return left === "gone" && local.removed ? "released" : left;
  }
  // First the tombstone, then the queue: a claim that comes in after the queue was read finds the tombstone.
  const first = buries ? await exit.bury(ref) : null;
  const removed = await removeById(exit, ref);
  if (local !== undefined) claims.forget(local);
  return removed || local?.removed ? "released" : goneBy(exit, ref, first);
}

/** Wherever it is in the queue. */
export async function removeById<Entry extends QueueEntry>(
  exit: Pick<QueueExit<never, Entry>, "queueNow" | "removeEntry">,
  { name, id }: ClaimRef,
): Promise<boolean> {
  const queue = await exit.queueNow(name);
  const entries = queue.entries.filter((entry) => entry.id === id);
  const removed = await Promise.all(entries.map((entry) => exit.removeEntry(name, entry)));
  return removed.includes(true);
}

/** What a release is told that found no entry. `first`: see `bury`; somebody else released a claim that had a tombstone before. */
export async function goneBy(
  exit: Pick<QueueExit<never, never>, "buried">,
  ref: ClaimRef,
  first: boolean | null,
): Promise<"gone" | "revoked"> {
  const buried = first === null ? (await exit.buried([ref])).has(ref.id) : !first;
  return buried ? "revoked" : "gone";
}
