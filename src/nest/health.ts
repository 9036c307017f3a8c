import type { Locks } from "../locks.js";

/** What terminus shows of one part. */
export type LocksHealth<Key extends string> = Record<
  Key,
  { readonly status: "up" | "down"; readonly message?: string }
>;

/** For terminus: `health.check([() => locksHealth(locks)])`. Down while the locks drain, and when the store gives no lock. */
export async function locksHealth<Key extends string = "locks">(
  locks: Locks,
  key: Key = "locks" as Key,
): Promise<LocksHealth<Key>> {
  const { healthy, error } = await locks.health();
  const message = error === undefined ? {} : { message: error.message };
  return { [key]: { status: healthy ? "up" : "down", ...message } } as LocksHealth<Key>;
}
