import type { Locks } from "../locks.js";

/** What terminus shows of one part. */
export type LocksHealth<Key extends string> = Record<
  Key,
  { readonly status: "up" | "down"; readonly message?: string }
>;

/** For terminus: `health.check([() => locksHealth(locks)])`. Down while the locks drain, and when the store does not answer. */
export async function locksHealth<Key extends string = "locks">(
  locks: Locks,
  key: Key = "locks" as Key,
): Promise<LocksHealth<Key>> {
  const as = (status: "up" | "down", message?: string): LocksHealth<Key> =>
    ({ [key]: { status, ...(message === undefined ? {} : { message }) } }) as LocksHealth<Key>;
  try {
    locks.draining.throwIfAborted();
    await locks.mutex("holdfast:health").isHeld();
    return as("up");
  } catch (error) {
    return as("down", error instanceof Error ? error.message : String(error));
  }
}
